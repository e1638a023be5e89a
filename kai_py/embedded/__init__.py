"""The embedded cluster: a revisioned store behind an HTTP front, controllers, a fake kubelet.

Start at `cluster`. What it is not: there is no authentication and no admission webhook, built-in
kinds keep unknown fields, volumes are not bound, field ownership is known for server-side apply
only and not shown as managedFields, and lists are of the present revision. Bodies in protobuf,
which `kubectl create deployment` and its like send, are not read (`kubectl create -f` and `apply`
work). Whatever else it cannot do it refuses with 404, 405, 415 or 501.
"""
