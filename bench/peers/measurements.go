package main

import (
	"context"
	"slices"
)

// pingPong is the one measurement that needs no stream.
const pingPong = "ping_pong"

// Both need a filter that names the key by its last wildcard.
const (
	orbitGroups   = "orbit_pcgroups_consume"
	orbitFailover = "orbit_pcgroups_failover"
)

// measurement takes one figure.
type measurement func(context.Context, bench) (result, error)

// order is how the measurements run unless -only says otherwise: the limit
// first, then from the usual way to the slowest.
var order = []string{
	pingPong,
	"nats_go_consume_ack",
	"nats_go_consume_double_ack",
	"nats_go_fetch1_ack",
	"nats_go_fetch1_double_ack",
	"nats_go_consume_ack_all_64",
	orbitGroups,
	orbitFailover,
}

// measurements by name. The names are part of the bench report and stay.
var measurements = map[string]measurement{
	pingPong:                     measurePingPong,
	"nats_go_consume_ack":        consume(sendAck),
	"nats_go_consume_double_ack": consume(confirmAck),
	"nats_go_fetch1_ack":         fetchOne(sendAck),
	"nats_go_fetch1_double_ack":  fetchOne(confirmAck),
	"nats_go_consume_ack_all_64": consumeAll,
	orbitGroups:                  measureGroups,
	orbitFailover:                measureGroupFailover,
}

func names() []string { return slices.Clone(order) }
