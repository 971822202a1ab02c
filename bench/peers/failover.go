package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/pcgroups"
)

const (
	// deaths is how many members die; each costs a whole deadline.
	deaths = 3
	// deadline is that of the lanes that these are measured beside.
	deadline = 15 * time.Second
	// handling is how long a message takes, so that there are some left when the member dies.
	handling = 2 * time.Millisecond
)

// measureGroupFailover measures how long a group stands when the instance of its member that has the pin loses its
// connection with a message in hand, as it does when its process is killed, and another instance of that member waits.
func measureGroupFailover(ctx context.Context, b bench) (result, error) {
	var gaps []time.Duration
	var all time.Duration
	for range deaths {
		gap, err := b.memberDies(ctx)
		if err != nil {
			return result{}, err
		}
		gaps = append(gaps, gap)
		all += gap
	}
	slices.Sort(gaps)
	p50 := gaps[len(gaps)/2]
	return result{
		Name: b.name, Value: float64(p50.Microseconds()) / 1000, Unit: "ms", Count: deaths, Seconds: all.Seconds(),
	}, nil
}

// memberDies is one death, in a group of its own.
func (b bench) memberDies(ctx context.Context) (gap time.Duration, err error) {
	group, remove, err := b.createGroup(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	dying, err := nats.Connect(b.settings.url, nats.Name("lanekeeper-bench-dying"), nats.NoReconnect())
	if err != nil {
		return 0, fmt.Errorf("cannot connect to %s: %w", b.settings.url, err)
	}
	defer dying.Close()
	its, err := jetstream.New(dying)
	if err != nil {
		return 0, fmt.Errorf("cannot use JetStream at %s: %w", b.settings.url, err)
	}
	instance := dyingInstance{connection: dying, begun: make(chan struct{}), told: make(chan struct{}), died: make(chan time.Time, 1)}
	first, err := b.join(ctx, its, group, instance.handle)
	if err != nil {
		return 0, err
	}
	defer first.Stop()
	if _, err := await(ctx, instance.begun); err != nil {
		return 0, err
	}
	next := make(chan time.Time, 1)
	second, err := b.join(ctx, b.js, group, func(message jetstream.Msg) {
		select {
		case next <- time.Now():
		default:
		}
		// What cannot be acknowledged comes again, to nobody who counts.
		_ = message.Ack()
	})
	if err != nil {
		return 0, err
	}
	defer func() {
		second.Stop()
		<-second.Done()
	}()
	close(instance.told)
	dead, err := await(ctx, instance.died)
	if err != nil {
		return 0, err
	}
	taken, err := await(ctx, next)
	return taken.Sub(dead), err
}

// await receives, or says why it was given up.
func await[T any](ctx context.Context, from <-chan T) (T, error) {
	select {
	case received := <-from:
		return received, nil
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// dyingInstance handles messages until it is told to die; it is told after it has begun.
type dyingInstance struct {
	connection *nats.Conn
	handled    int
	begun      chan struct{}
	told       chan struct{}
	died       chan time.Time
}

// handle breaks its own connection once it was told, with this message in hand.
func (i *dyingInstance) handle(message jetstream.Msg) {
	time.Sleep(handling)
	if i.handled++; i.handled == 1 {
		close(i.begun)
	}
	select {
	case <-i.told:
		if !i.connection.IsClosed() {
			i.connection.Close()
			i.died <- time.Now()
		}
	default:
		// What cannot be acknowledged comes again.
		_ = message.Ack()
	}
}

func (b bench) join(ctx context.Context, js jetstream.JetStream, group string, handler jetstream.MessageHandler) (pcgroups.ConsumerGroupConsumeContext, error) {
	consuming, err := pcgroups.ElasticConsume(ctx, js, b.settings.stream, group, member, handler, ofOneMember(deadline))
	if err != nil {
		return nil, fmt.Errorf("cannot consume as a member of group %s: %w", group, err)
	}
	return consuming, nil
}
