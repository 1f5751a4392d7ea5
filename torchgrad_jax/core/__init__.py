"""Tensor and what happens to it: dispatch, the nodes of the graph, what is saved, writes, views, tangents."""
