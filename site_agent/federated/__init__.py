"""Federated training of networks: the sites' training, and the engines that hold rounds."""
