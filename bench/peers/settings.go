package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// nothing as the only name asks for no measurement, for a run that just publishes.
const nothing = "none"

// settings are the arguments after they were checked.
type settings struct {
	url     string
	n       int
	stream  string
	filter  string
	payload int
	publish int
	subject string
	keys    int
	rounds  int
	only    []string
	timeout time.Duration
}

// parseSettings reads the arguments and refuses what cannot work, naming the
// flag, its value and what is allowed.
func parseSettings(arguments []string, log io.Writer) (settings, error) {
	var s settings
	var only string
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(log)
	flags.StringVar(&s.url, "url", "nats://127.0.0.1:4222", "the server")
	flags.IntVar(&s.n, "n", 20000, "messages per lane measurement")
	flags.StringVar(&s.stream, "stream", "", "an existing stream (needed by every lane measurement)")
	flags.StringVar(&s.filter, "filter", "", "consume only this subject of the stream, for example one partition")
	flags.IntVar(&s.payload, "payload", 128, "bytes of a published message")
	flags.IntVar(&s.publish, "publish", 0, "publish so many messages first")
	flags.StringVar(&s.subject, "subject", "", "where to publish; its one * becomes the key: bench.*")
	flags.IntVar(&s.keys, "keys", 100, "different keys to publish")
	flags.IntVar(&s.rounds, "rounds", 10000, "round trips of ping_pong")
	flags.StringVar(&only, "only", strings.Join(names(), ","), "measurements in the order to run them, or none")
	flags.DurationVar(&s.timeout, "timeout", 5*time.Minute, "give up after this time")
	if err := flags.Parse(arguments); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: everything is given by flags", flags.Arg(0))
	}
	var err error
	if s.only, err = parseNames(only); err != nil {
		return s, err
	}
	return s, s.check()
}

func (s settings) check() error {
	for _, bound := range []struct {
		flag            string
		value, low, top int
	}{
		{"n", s.n, 1, 100_000_000},
		{"payload", s.payload, 0, 1 << 20},
		{"publish", s.publish, 0, 100_000_000},
		{"keys", s.keys, 1, 1_000_000},
		// Fewer round trips make a poor 99th percentile.
		{"rounds", s.rounds, 5000, 10_000_000},
	} {
		if bound.value < bound.low || bound.value > bound.top {
			return fmt.Errorf("-%s is %d: it must be %d to %d", bound.flag, bound.value, bound.low, bound.top)
		}
	}
	if s.timeout <= 0 {
		return fmt.Errorf("-timeout is %s: it must be longer than nothing", s.timeout)
	}
	if s.publish > 0 && strings.Count(s.subject, "*") != 1 {
		return fmt.Errorf("-subject is %q: to publish it must hold exactly one *, the key", s.subject)
	}
	needsStream := slices.ContainsFunc(s.only, func(name string) bool { return name != pingPong })
	if s.stream == "" && needsStream {
		return fmt.Errorf("-stream is empty: every measurement but %s needs an existing stream", pingPong)
	}
	return nil
}

// parseNames keeps the order given, so that a driver decides what runs when.
func parseNames(list string) ([]string, error) {
	if list == nothing {
		return nil, nil
	}
	var chosen []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if _, known := measurements[name]; !known {
			return nil, fmt.Errorf("-only names %q: it must be %s, or %s", name, strings.Join(names(), ", "), nothing)
		}
		chosen = append(chosen, name)
	}
	return chosen, nil
}
