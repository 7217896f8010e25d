"""The process proxy by which an Enterprise Gateway has its kernels run by this gateway: it keeps its clients, we lease the GPUs.

It runs inside Enterprise Gateway, whose pins exclude ours, so it lives on what Enterprise Gateway itself requires (pyzmq, tornado) and on
``gateway.protocol`` and ``gateway.lab.line``. It must never import what needs a newer Jupyter. A kernelspec names it::

    "process_proxy": {"class_name": "gateway.enterprise.proxy.process_proxy.ElasticProcessProxy",
                      "config": {"url": "https://gateway:8888", "token_file": "/run/secrets/elastic-gateway"}}
"""
