// Command peers measures what other ways of draining one ordered lane reach on
// a given NATS server, so that Lanekeeper's own figure can be read against them.
//
// It prints one JSON object per measurement on standard output and everything
// meant for people on standard error. It neither creates nor deletes streams:
// the stream exists, and each measurement brings a durable consumer of its own
// and takes it away again.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command is the whole program without its process: it returns the exit code,
// 2 for arguments that make no sense and 1 for anything that failed later.
func command(ctx context.Context, arguments []string, out, log io.Writer) int {
	settings, err := parseSettings(arguments, log)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(log, "peers: %v\n", err)
		return 2
	}
	ctx, cancel := context.WithTimeoutCause(ctx, settings.timeout,
		fmt.Errorf("gave up after %s (-timeout)", settings.timeout))
	defer cancel()
	if err := run(ctx, settings, out, log); err != nil {
		fmt.Fprintf(log, "peers: %v\n", err)
		return 1
	}
	return 0
}

// run connects once, publishes if asked, and measures in the order given.
func run(ctx context.Context, settings settings, out, log io.Writer) error {
	connection, err := nats.Connect(settings.url,
		nats.Name("lanekeeper-bench-peers"),
		// A measurement across a reconnect would be no measurement.
		nats.NoReconnect(),
	)
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %w", settings.url, err)
	}
	defer connection.Close()
	fmt.Fprintf(log, "peers: nats-server %s at %s\n", connection.ConnectedServerVersion(), connection.ConnectedUrl())

	js, err := jetstream.New(connection)
	if err != nil {
		return fmt.Errorf("cannot use JetStream at %s: %w", settings.url, err)
	}
	if settings.publish > 0 {
		if err := publish(ctx, js, settings, log); err != nil {
			return err
		}
	}
	encoder := json.NewEncoder(out)
	for _, name := range settings.only {
		result, err := measurements[name](ctx, bench{connection: connection, js: js, settings: settings, name: name})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := encoder.Encode(result); err != nil {
			return fmt.Errorf("%s: cannot print the result: %w", name, err)
		}
	}
	return nil
}

// result is one line of the output. Name, Value and Unit are always there; the
// rest says what the value was made from.
type result struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Count is the number of messages, or of round trips.
	Count int `json:"count"`
	// Seconds is how long all of them took together.
	Seconds float64 `json:"seconds"`
	// P50 and P99 are of one round trip, in nanoseconds; only ping_pong has them.
	P50 int64 `json:"p50_ns,omitempty"`
	P99 int64 `json:"p99_ns,omitempty"`
}

func perSecond(name string, count int, elapsed time.Duration) result {
	return result{
		Name:    name,
		Value:   float64(count) / elapsed.Seconds(),
		Unit:    "msg/s",
		Count:   count,
		Seconds: elapsed.Seconds(),
	}
}
