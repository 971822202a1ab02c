package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/pcgroups"
)

const (
	// member is the only one of its group, so everything is its.
	member = "member"
	// copied is how long the group's own stream may take to have every message.
	copied = time.Minute
)

// measureGroups measures an elastic partitioned consumer group of orbit.go with one partition and one member, as its
// users get it: pinned, one message out at once, acknowledged without confirmation. Its copy of the stream is
// complete before the time begins, because copying is not consuming.
func measureGroups(ctx context.Context, b bench) (r result, err error) {
	group, remove, err := b.createGroup(ctx)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	elapsed, err := b.consumeGroup(ctx, b.settings.stream, group)
	if err != nil {
		return result{}, err
	}
	// One interval less than messages: joining a group takes its own time.
	return perSecond(b.name, b.settings.n-1, elapsed), nil
}

// createGroup makes a group with a member that has everything, and says how to take it away again.
func (b bench) createGroup(ctx context.Context) (group string, remove func() error, err error) {
	wildcards := strings.Count(b.settings.filter, "*")
	if wildcards == 0 {
		return "", nil, fmt.Errorf("-filter is %q: a group needs one with a *, whose last is the key", b.settings.filter)
	}
	stream := b.settings.stream
	group = fmt.Sprintf("peers_%d_%d", os.Getpid(), time.Now().UnixNano())
	by := []pcgroups.PartitioningFilter{{Filter: b.settings.filter, PartitioningWildcards: []int{wildcards}}}
	if _, err := pcgroups.CreateElastic(ctx, b.js, stream, group, 1, by, 0, 0); err != nil {
		return "", nil, fmt.Errorf("cannot create group %s on stream %s: %w", group, stream, err)
	}
	remove = func() error {
		// The context may be over already, and the group's stream should still go.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := pcgroups.DeleteElastic(ctx, b.js, stream, group); err != nil {
			return fmt.Errorf("cannot delete group %s: %w", group, err)
		}
		return nil
	}
	if err := b.awaitCopy(ctx, stream+"-"+group); err != nil {
		return "", nil, errors.Join(err, remove())
	}
	if _, err := pcgroups.AddMembers(ctx, b.js, stream, group, []string{member}); err != nil {
		return "", nil, errors.Join(fmt.Errorf("cannot add a member to group %s: %w", group, err), remove())
	}
	return group, remove, nil
}

// awaitCopy waits until the group's own stream has what it is to be measured with.
func (b bench) awaitCopy(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, copied, fmt.Errorf("stream %s did not get %d messages within %s", name, b.settings.n, copied))
	defer cancel()
	stream, err := b.js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("cannot find stream %s: %w", name, err)
	}
	for {
		info, err := stream.Info(ctx)
		if err != nil {
			return errors.Join(context.Cause(ctx), fmt.Errorf("cannot read stream %s: %w", name, err))
		}
		if info.State.Msgs >= uint64(b.settings.n) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ofOneMember is how a member takes one message at a time.
func ofOneMember(wait time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1, AckWait: wait}
}

// consumeGroup is the time from the first message to the last.
func (b bench) consumeGroup(ctx context.Context, stream, group string) (time.Duration, error) {
	ctx, finish := context.WithCancelCause(ctx)
	defer finish(nil)
	var first, end time.Time
	each := b.each(ctx, func(_ context.Context, message jetstream.Msg) error {
		end = time.Now()
		if first.IsZero() {
			first = end
		}
		return message.Ack()
	}, finish)
	consuming, err := pcgroups.ElasticConsume(ctx, b.js, stream, group, member, each, ofOneMember(ackWait))
	if err != nil {
		return 0, fmt.Errorf("cannot consume as a member of group %s: %w", group, err)
	}
	<-ctx.Done()
	consuming.Stop()
	<-consuming.Done()
	if cause := context.Cause(ctx); cause != errFinished {
		return 0, cause
	}
	return end.Sub(first), nil
}
