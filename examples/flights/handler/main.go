// Command handler is an example of a Lanekeeper handler: a small HTTP server
// that gets one departure of an aircraft at a time, in order for that aircraft.
//
// Nothing in it knows NATS, partitions or Kubernetes. The lane beside it sends
// one POST per message and waits for the answer before it sends the next, so
// the handler needs no queue, no lock per aircraft and no retry of its own.
//
// What it does with a departure is to write it into a journal, and to answer
// only once it is written. The journal records every handling, repeats too, so
// that whoever reads it can judge the order without trusting this program.
//
// With the argument "lines" there is no server: the lane starts the program
// itself (handler.exec) and gives it each departure as a line.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// stopWithin is how long a departure in hand may take after SIGTERM. The lane
// has ended by then, so there is normally none.
const stopWithin = 10 * time.Second

func main() {
	if len(os.Args) > 1 && os.Args[1] == "lines" {
		// The standard output is for answers.
		slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
		exitWith(runLines(os.Getenv))
		return
	}
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	exitWith(run(ctx, os.Getenv))
}

func exitWith(err error) {
	if err != nil {
		slog.Error("the handler stopped", "error", err.Error())
		os.Exit(1)
	}
}

// runLines handles what comes on the standard input.
func runLines(environment func(string) string) error {
	config, err := readConfig(environment)
	if err != nil {
		return err
	}
	journal, err := openJournal(config.journal)
	if err != nil {
		return err
	}
	return errors.Join(serveLines(os.Stdin, os.Stdout, journal, config.pod, config.work), journal.Close())
}

// run serves until the context ends, then finishes what is in hand.
func run(ctx context.Context, environment func(string) string) error {
	config, err := readConfig(environment)
	if err != nil {
		return err
	}
	journal, err := openJournal(config.journal)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", ":"+config.port)
	if err != nil {
		return errors.Join(fmt.Errorf("cannot listen on port %s: %w", config.port, err), journal.Close())
	}
	server := &http.Server{
		Handler:           newHandler(journal, config.pod, config.work),
		ReadHeaderTimeout: 10 * time.Second,
	}
	slog.Info("listening", "address", listener.Addr().String(), "journal", config.journal, "pod", config.pod)
	return errors.Join(serve(ctx, server, listener), journal.Close())
}

func serve(ctx context.Context, server *http.Server, listener net.Listener) error {
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("cannot serve: %w", err)
	case <-ctx.Done():
	}
	slog.Info("stopping: finishing what is in hand")
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := server.Shutdown(deadline); err != nil {
		return fmt.Errorf("a departure was still in hand after %s: %w", stopWithin, err)
	}
	return nil
}

// config is what the environment says.
type config struct {
	journal, port, pod string
	work               time.Duration
}

func readConfig(environment func(string) string) (config, error) {
	or := func(name, fallback string) string {
		if value := environment(name); value != "" {
			return value
		}
		return fallback
	}
	c := config{
		journal: or("JOURNAL", "/journal/flights.ndjson"),
		port:    or("PORT", "8080"),
		pod:     environment("POD"),
	}
	if c.pod == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("POD is empty and the host has no name: %w", err)
		}
		c.pod = host
	}
	if port, err := strconv.ParseUint(c.port, 10, 16); err != nil || port == 0 {
		return c, fmt.Errorf("PORT is %q: it must be a number from 1 to 65535", c.port)
	}
	work, err := time.ParseDuration(or("WORK", "0s"))
	if err != nil || work < 0 {
		return c, fmt.Errorf("WORK is %q: it must be a time such as 20ms", environment("WORK"))
	}
	c.work = work
	return c, nil
}
