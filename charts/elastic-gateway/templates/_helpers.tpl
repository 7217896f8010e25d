{{- define "eg.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "eg.gatewayName" -}}
{{- default (include "eg.fullname" .) .Values.gatewayName -}}
{{- end -}}

{{- define "eg.kernelNamespace" -}}
{{- default .Release.Namespace .Values.kernels.namespace -}}
{{- end -}}

{{- define "eg.image" -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{- printf "%s%s%s" .Values.image.repository (ternary "@" ":" (hasPrefix "sha256:" $tag)) $tag -}}
{{- end -}}

{{- define "eg.serviceAccount" -}}
{{- default (ternary (include "eg.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "eg.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "eg.labels" -}}
{{ include "eg.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* By which the gateway marks what it makes itself (gateway/backends/kubernetes/names.py). */}}
{{- define "eg.made" -}}
app.kubernetes.io/managed-by: jupyter-elastic-gateway
elastic.jupyter.org/gateway: {{ include "eg.gatewayName" . }}
{{- end -}}

{{- define "eg.tokenSecret" -}}
{{- default (printf "%s-token" (include "eg.fullname" .)) .Values.token.existingSecret -}}
{{- end -}}

{{- define "eg.tokenKey" -}}
{{- ternary .Values.token.existingSecretKey "token" (ne .Values.token.existingSecret "") -}}
{{- end -}}

{{- define "eg.claim" -}}
{{- default (printf "%s-state" (include "eg.fullname" .)) .Values.persistence.existingClaim -}}
{{- end -}}

{{- define "eg.basePath" -}}
{{- dig "ServerApp" "base_url" "/" .Values.config | trimSuffix "/" -}}
{{- end -}}

{{/* "yes" where a profile leases GPUs: then the gateway reads nodes. */}}
{{- define "eg.leases" -}}
{{- range .Values.profiles -}}
{{- if and .gpu_resource (ne (default "runtime" .gpu_sees) "life") -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* What one value says about another; the schema can't. */}}
{{- define "eg.check" -}}
{{- $profiles := .Values.profiles -}}
{{- $there := keys $profiles | sortAlpha | join ", " -}}
{{- if not (hasKey $profiles .Values.kernels.defaultProfile) -}}
{{- fail (printf "kernels.defaultProfile is %q, and profiles has: %s." .Values.kernels.defaultProfile $there) -}}
{{- end -}}
{{- range $name, $profile := $profiles -}}
{{- if and $profile.warm (contains "{user}" (toJson $profile.volumes)) -}}
{{- fail (printf "profiles.%s.warm is %v: a kernel that waits for anybody has no volume of one user's own ({user}). Leave one out." $name $profile.warm) -}}
{{- end -}}
{{- if and $profile.warm $profile.gpu_resource (eq (default "runtime" $profile.gpu_sees) "life") -}}
{{- fail (printf "profiles.%s.warm is %v: a kernel that waits for anybody has no GPU for life. Leave one out." $name $profile.warm) -}}
{{- end -}}
{{- if and (eq (default "runtime" $profile.gpu_sees) "claim") (not $profile.gpu_claim) -}}
{{- fail (printf "profiles.%s.gpu_claim is missing: gpu_sees is claim, so name the ResourceClaimTemplate." $name) -}}
{{- end -}}
{{- $volumes := list -}}
{{- range $profile.volumes -}}
{{- if has .name $volumes -}}
{{- fail (printf "profiles.%s.volumes has two volumes %q: give each a name of its own, though it be the same claim." $name .name) -}}
{{- end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- end -}}
{{- range $name, $spec := .Values.kernelspecs -}}
{{- if not (hasKey $profiles (default $.Values.kernels.defaultProfile $spec.profile)) -}}
{{- fail (printf "kernelspecs.%s.profile is %q, and profiles has: %s." $name $spec.profile $there) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.token.value .Values.token.existingSecret -}}
{{- fail "token.value and token.existingSecret are both given: leave one out." -}}
{{- end -}}
{{- range $section, $instead := dict "ElasticGateway.name" "gatewayName" "ElasticGateway.simulated_gpus" "simulatedGpus" "KubernetesBackend.namespace" "kernels.namespace" "KubernetesBackend.code_image" "image" "KubernetesBackend.pull_policy" "image.pullPolicy" "KubernetesBackend.profiles" "profiles" "KubernetesBackend.default_profile" "kernels.defaultProfile" "KubernetesBackend.foreign_pods" "foreignPods" "Bursts.folder" "bursts" "Bursts.port" "bursts" "Bursts.address" "bursts.address" "IdentityProvider.token" "token" "ElasticIdentityProvider.token" "token" "PasswordIdentityProvider.token" "token" "ServerApp.token" "token" -}}
{{- $path := splitList "." $section -}}
{{- if hasKey (default dict (get $.Values.config (index $path 0))) (index $path 1) -}}
{{- fail (printf "config.%s can't be set there: use the value %s." $section $instead) -}}
{{- end -}}
{{- end -}}
{{- if hasKey .Values.config "Leases" -}}
{{- fail "config.Leases can't be set there: use the value leases." -}}
{{- end -}}
{{- if hasKey (default dict (get .Values.config "ElasticGateway")) "backend" -}}
{{- fail "config.ElasticGateway.backend can't be set: this chart's gateway runs kernels as pods." -}}
{{- end -}}
{{- end -}}

{{/* jupyter_elastic_gateway_config.json, without the token. */}}
{{- define "eg.config" -}}
{{- $leases := dict "policy_file" "/etc/elastic-gateway/policy/policy.yaml" -}}
{{- range $name, $value := .Values.leases -}}
{{- $_ := set $leases $name (ternary nil $value (eq (toString $value) "none")) -}}
{{- end -}}
{{- $backend := dict "namespace" (include "eg.kernelNamespace" .) "code_image" (include "eg.image" .) "pull_policy" .Values.image.pullPolicy "profiles" .Values.profiles "default_profile" .Values.kernels.defaultProfile "foreign_pods" .Values.foreignPods -}}
{{- $gateway := dict "name" (include "eg.gatewayName" .) "backend" "kubernetes" -}}
{{- if ne (toString .Values.simulatedGpus) "none" -}}
{{- $_ := set $gateway "simulated_gpus" .Values.simulatedGpus -}}
{{- end -}}
{{- $ours := dict "ElasticGateway" $gateway "KubernetesBackend" $backend "Leases" $leases "KernelSpecManager" (dict "allowed_kernelspecs" (keys .Values.kernelspecs | sortAlpha) "ensure_native_kernel" false) -}}
{{- $bursts := dict "most_workers" 0 -}}
{{- if .Values.bursts.enabled -}}
{{- $bursts = dict "folder" "/var/lib/elastic-gateway-bursts" "port" 8889 "address" (default (printf "https://%s.%s:8889" (include "eg.fullname" .) .Release.Namespace) .Values.bursts.address) -}}
{{- if .Values.bursts.kinds -}}
{{- $_ := set $backend "job_kinds" .Values.bursts.kinds -}}
{{- end -}}
{{- end -}}
{{- $_ := set $ours "Bursts" $bursts -}}
{{- if .Values.users.existingSecret -}}
{{- $_ := set $ours "ElasticIdentityProvider" (dict "users_file" "/etc/elastic-gateway/users/users.yaml") -}}
{{- end -}}
{{- if .Values.persistence.enabled -}}
{{- $_ := set $ours "SessionManager" (dict "database_filepath" "/var/lib/elastic-gateway/sessions.db") -}}
{{- $_ := set $ours "Usage" (dict "database" "/var/lib/elastic-gateway/usage.db") -}}
{{- $_ := set $ours "ServerApp" (dict "cookie_secret_file" "/var/lib/elastic-gateway/cookie_secret") -}}
{{- end -}}
{{- mergeOverwrite $ours (deepCopy .Values.config) | toPrettyJson -}}
{{- end -}}

{{/* kernel.json of one kernelspec: a list of name, its values and the root. */}}
{{- define "eg.kernelspec" -}}
{{- $spec := index . 1 -}}{{- $root := index . 2 -}}
{{- $profile := default $root.Values.kernels.defaultProfile $spec.profile -}}
{{- $leases := (get $root.Values.profiles $profile).gpu_resource -}}
{{- $config := dict "profile" $profile "gpus" (ternary $spec.gpus (ternary 1 0 (not (empty $leases))) (hasKey $spec "gpus")) -}}
{{- $argv := default (list "python" "-m" "ipykernel_launcher" "-f" "{connection_file}" "--ext=gateway.magics") $spec.argv -}}
{{- $metadata := merge (dict "kernel_provisioner" (dict "provisioner_name" "elastic-provisioner" "config" $config)) (default dict $spec.metadata) (dict "debugger" true "supported_encryption" "curve") -}}
{{- dict "argv" $argv "display_name" $spec.displayName "language" (default "python" $spec.language) "interrupt_mode" "signal" "env" (default dict $spec.env) "metadata" $metadata | toPrettyJson -}}
{{- end -}}
