"""One short coroutine for each route: read the request, ask the store, show the answer. Rules live elsewhere."""
