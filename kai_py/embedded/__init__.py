"""The embedded cluster: a revisioned store behind an HTTP front, controllers, a fake kubelet.

Start at `cluster`. Limits: there is no authentication and no admission webhook, built-in kinds keep
unknown fields, volumes are not bound, field ownership is tracked for server-side apply only and not
shown as managedFields, and lists are of the present revision. Bodies in protobuf, which `kubectl
create deployment` and the like send, are not decoded (`kubectl create -f` and `apply` work).
Anything else unsupported is refused with 404, 405, 415 or 501.
"""
