"""The faces of the server: HTTP, websockets, metrics. It asks the broker and the supervisors, and must never keep a truth of its own."""
