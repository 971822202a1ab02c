module lanekeeper.dev/examples/flights/handler

go 1.24
