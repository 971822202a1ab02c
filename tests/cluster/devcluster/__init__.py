"""The dev cluster: tools by hash, and a real Kubernetes on one Linux machine. Standard library only."""
