"""Split federated learning: the first stages of a network run at the sites with the images.

How it works. A `plan.Cut` cuts a network between two stages into a client part, which every site
trains on its own images, and a server part. Three kinds of processes take part in a round:

1. Each **client** (`client`) fetches the client part of the round from the aggregator, audits it,
   and sends the main server the part's output for each batch of images: the smashed data. The
   main server answers with their gradient, with which the client takes its step.
2. The **main server** (`main_server`) has a server part for each site, and takes its own step with
   each batch. It never sees an image or a client part.
3. The **part aggregator** (`aggregator`), at another institution, receives the trained client
   parts. It never sees smashed data.
4. At the round's end the main server names the sites that both have received. The aggregator
   averages their client parts, the main server their server parts, with the same weights.

`training` is the arithmetic of both halves of a step, `frozen` has the variants
with an untrained client part, `in_process` holds rounds in memory, and
`parts.traffic_of` computes the traffic.

Source: Thapa et al. 2022, "SplitFed: When Federated Learning Meets Split Learning".
"""
