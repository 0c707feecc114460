//! What the first start makes: namespaces, RBAC, priority classes, the kubernetes service.
