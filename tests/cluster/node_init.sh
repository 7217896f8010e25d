#!/bin/bash
# The first process of a node, in mount, process and host name namespaces of its own: starts containerd, kubelet and kube-proxy, and ends
# with the first of them. What it hides or puts in place of the machine's own exists in its mount namespace alone.
#   node_init.sh FOLDER NAME BINARIES
set -euo pipefail
folder=$1 name=$2 binaries=$3
kubeconfig=$folder/../control-plane/node-$name.kubeconfig

# 1. Folders of the node's own, where these programs look by themselves
hostname "$name"
mkdir -p "$folder"/{lib,log,sysctl}
resolver=$(readlink -m /etc/resolv.conf)
mount -t tmpfs -o mode=755 node-run /run
mkdir -p /run/netns /run/lock "$(dirname "$resolver")"
[ -e "$resolver" ] || touch "$resolver"
mount --bind "$folder/resolv.conf" "$resolver"
mount --bind "$folder/log" /var/log
mount --bind "$folder/lib" /var/lib
rm -rf /var/lib/cni # addresses of pods that ended with the node
mkdir -p /var/lib/kubelet

# 2. What the kubelet wants of the kernel, without changing the machine's own
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
  file=$folder/sysctl/${setting//[\/=]/_}
  echo "${setting#*=}" >"$file"
  mount --bind "$file" "/proc/sys/${setting%=*}"
done

# 3. The programs; kubelet and kube-proxy wait for the kubeconfigs, which come once the API server is up
containerd --config "$folder/containerd.toml" >>"$folder/containerd.log" 2>&1 &
until [ -S /run/containerd/containerd.sock ] && [ -e "$kubeconfig" ]; do
  kill -0 $! || exit 1
  sleep 0.05
done
"$binaries/kubelet" --config="$folder/kubelet.yaml" --kubeconfig="$kubeconfig" --hostname-override="$name" \
  --node-ip="$(<"$folder/address")" >>"$folder/kubelet.log" 2>&1 &
"$binaries/kube-proxy" --config="$folder/kube-proxy.yaml" --hostname-override="$name" >>"$folder/kube-proxy.log" 2>&1 &
wait -n
