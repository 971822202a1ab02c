package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// ackWait is long enough that no message is delivered twice in a measurement.
	ackWait = 30 * time.Second
	// forgotten is when the server drops a consumer that a killed run left behind.
	forgotten = 5 * time.Minute
	// patience bounds one wait for one message; a healthy lane never comes near it.
	patience = 10 * time.Second
)

// bench is what one measurement works with.
type bench struct {
	connection *nats.Conn
	js         jetstream.JetStream
	settings   settings
	name       string
}

// acknowledge settles one message, with or without the server's confirmation.
type acknowledge func(context.Context, jetstream.Msg) error

func sendAck(_ context.Context, message jetstream.Msg) error { return message.Ack() }

func confirmAck(ctx context.Context, message jetstream.Msg) error { return message.DoubleAck(ctx) }

// withLane runs a measurement on a fresh durable consumer with one message out at once, and removes it.
func (b bench) withLane(ctx context.Context, measure func(jetstream.Consumer) (time.Duration, error)) (result, error) {
	return b.withConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1}, measure)
}

// withConsumer completes what a fresh durable consumer is made of, runs a measurement on it and removes it.
func (b bench) withConsumer(ctx context.Context, config jetstream.ConsumerConfig, measure func(jetstream.Consumer) (time.Duration, error)) (r result, err error) {
	name := fmt.Sprintf("peers_%s_%d_%d", b.name, os.Getpid(), time.Now().UnixNano())
	config.Durable = name
	config.AckWait = ackWait
	config.FilterSubject = b.settings.filter
	config.InactiveThreshold = forgotten
	consumer, err := b.js.CreateConsumer(ctx, b.settings.stream, config)
	if err != nil {
		return result{}, fmt.Errorf("cannot create consumer %s on stream %s: %w", name, b.settings.stream, err)
	}
	defer func() {
		// The context may be over already, and the consumer should still go.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if gone := b.js.DeleteConsumer(ctx, b.settings.stream, name); gone != nil {
			err = errors.Join(err, fmt.Errorf("cannot delete consumer %s: %w", name, gone))
		}
	}()
	// Asked again, because the answer to the creation may not have counted yet.
	info, err := consumer.Info(ctx)
	if err != nil {
		return result{}, fmt.Errorf("cannot read consumer %s: %w", name, err)
	}
	if waiting := info.NumPending; waiting < uint64(b.settings.n) {
		return result{}, fmt.Errorf("stream %s has %d messages for filter %q: -n asks for %d", b.settings.stream, waiting, b.settings.filter, b.settings.n)
	}
	elapsed, err := measure(consumer)
	if err != nil {
		return result{}, err
	}
	return perSecond(b.name, b.settings.n, elapsed), nil
}

// handle settles a message; it refuses a repeat or a step back, which would
// make the figure a lie.
func handle(ctx context.Context, message jetstream.Msg, settle acknowledge, last *uint64) error {
	meta, err := message.Metadata()
	if err != nil {
		return fmt.Errorf("a message without metadata: %w", err)
	}
	if meta.Sequence.Stream <= *last {
		return fmt.Errorf("message %d came after message %d", meta.Sequence.Stream, *last)
	}
	*last = meta.Sequence.Stream
	if err := settle(ctx, message); err != nil {
		return fmt.Errorf("cannot acknowledge message %d: %w", *last, err)
	}
	return nil
}

// consume measures a callback fed by the client's own overlapping pulls.
func consume(settle acknowledge) measurement {
	return func(ctx context.Context, b bench) (result, error) {
		return b.withLane(ctx, func(consumer jetstream.Consumer) (time.Duration, error) {
			return b.drain(ctx, consumer, settle)
		})
	}
}

// windowed is how many messages one acknowledgement of consumeAll settles.
const windowed = 64

// consumeAll measures the same with an acknowledgement that settles a whole window of messages.
func consumeAll(ctx context.Context, b bench) (result, error) {
	// As many as the client takes ahead by itself may be out, so it is never the window that makes it wait.
	config := jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy, MaxAckPending: jetstream.DefaultMaxMessages}
	return b.withConsumer(ctx, config, func(consumer jetstream.Consumer) (time.Duration, error) {
		handled := 0
		return b.drain(ctx, consumer, func(_ context.Context, message jetstream.Msg) error {
			if handled++; handled%windowed == 0 || handled == b.settings.n {
				return message.Ack()
			}
			return nil
		})
	})
}

// drain handles everything by a callback; the time from the first pull until the last ack is sent.
func (b bench) drain(ctx context.Context, consumer jetstream.Consumer, settle acknowledge) (time.Duration, error) {
	ctx, finish := context.WithCancelCause(ctx)
	defer finish(nil)
	start := time.Now()
	consuming, err := consumer.Consume(b.each(ctx, settle, finish), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		finish(fmt.Errorf("consuming was disturbed: %w", err))
	}))
	if err != nil {
		return 0, fmt.Errorf("cannot consume: %w", err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); cause != errFinished {
		consuming.Stop()
		return 0, cause
	}
	// An ack without confirmation may still be in the client's buffer.
	if err := b.connection.FlushTimeout(patience); err != nil {
		return 0, fmt.Errorf("cannot flush the last acks: %w", err)
	}
	elapsed := time.Since(start)
	consuming.Stop()
	<-consuming.Closed()
	return elapsed, nil
}

// each is a callback that handles one message after another and says when all of them are handled.
func (b bench) each(ctx context.Context, settle acknowledge, finish context.CancelCauseFunc) jetstream.MessageHandler {
	var last uint64
	handled := 0
	return func(message jetstream.Msg) {
		if ctx.Err() != nil || handled == b.settings.n {
			return
		}
		if err := handle(ctx, message, settle, &last); err != nil {
			finish(err)
			return
		}
		if handled++; handled == b.settings.n {
			finish(errFinished)
		}
	}
}

// errFinished is the cause of the one good end of a Consume measurement.
var errFinished = errors.New("every message was handled")

// fetchOne measures a loop that asks for one message at a time.
func fetchOne(settle acknowledge) measurement {
	return func(ctx context.Context, b bench) (result, error) {
		return b.withLane(ctx, func(consumer jetstream.Consumer) (time.Duration, error) {
			var last uint64
			start := time.Now()
			for range b.settings.n {
				if err := fetchAndSettle(ctx, consumer, settle, &last); err != nil {
					return 0, err
				}
			}
			if err := b.connection.FlushTimeout(patience); err != nil {
				return 0, fmt.Errorf("cannot flush the last acks: %w", err)
			}
			return time.Since(start), nil
		})
	}
}

func fetchAndSettle(ctx context.Context, consumer jetstream.Consumer, settle acknowledge, last *uint64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	batch, err := consumer.Fetch(1, jetstream.FetchMaxWait(patience))
	if err != nil {
		return fmt.Errorf("cannot fetch after message %d: %w", *last, err)
	}
	got := 0
	for message := range batch.Messages() {
		got++
		if err := handle(ctx, message, settle, last); err != nil {
			return err
		}
	}
	if err := batch.Error(); err != nil {
		return fmt.Errorf("the fetch after message %d ended badly: %w", *last, err)
	}
	if got != 1 {
		return fmt.Errorf("no message within %s after message %d", patience, *last)
	}
	return nil
}
