package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// inFlight is how many publishes may wait for their answer at a time.
const inFlight = 4000

// publish stores the messages that the measurements will drain, and returns
// only when the server has confirmed every one of them.
func publish(ctx context.Context, js jetstream.JetStream, s settings, log io.Writer) error {
	payload := make([]byte, s.payload)
	for i := range payload {
		payload[i] = 'a' + byte(i%26)
	}
	waiting := make([]jetstream.PubAckFuture, 0, inFlight)
	start := time.Now()
	for i := range s.publish {
		subject := strings.Replace(s.subject, "*", "k"+strconv.Itoa(i%s.keys), 1)
		future, err := js.PublishAsync(subject, payload)
		if err != nil {
			return fmt.Errorf("cannot publish to %s: %w", subject, err)
		}
		waiting = append(waiting, future)
		if len(waiting) == inFlight || i == s.publish-1 {
			if err := confirm(ctx, waiting, s.stream); err != nil {
				return err
			}
			waiting = waiting[:0]
		}
	}
	fmt.Fprintf(log, "peers: published %d messages in %s\n", s.publish, time.Since(start).Round(time.Millisecond))
	return nil
}

// confirm waits for each answer, and checks that it came from the stream meant.
func confirm(ctx context.Context, waiting []jetstream.PubAckFuture, stream string) error {
	for _, future := range waiting {
		select {
		case ack := <-future.Ok():
			if stream != "" && ack.Stream != stream {
				return fmt.Errorf("%s was stored in stream %s, not in %s", future.Msg().Subject, ack.Stream, stream)
			}
		case err := <-future.Err():
			return fmt.Errorf("the publish to %s was not confirmed: %w", future.Msg().Subject, err)
		case <-ctx.Done():
			return fmt.Errorf("%d publishes were not confirmed: %w", len(waiting), context.Cause(ctx))
		}
	}
	return nil
}
