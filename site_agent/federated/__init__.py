"""Federated training of networks: what sites do, and the engines that hold rounds."""
