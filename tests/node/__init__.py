"""Real nodes: kubelets, containerd, runc and DRA drivers as processes on this machine."""
