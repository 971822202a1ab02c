package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// measurePingPong takes the time of one round trip to the server. A lane that
// waits for a message and confirms it cannot do more than one per round trip,
// so 1/p50 is the limit that the other figures are held against.
func measurePingPong(ctx context.Context, b bench) (result, error) {
	trips := make([]time.Duration, 0, b.settings.rounds)
	start := time.Now()
	for range b.settings.rounds {
		if ctx.Err() != nil {
			return result{}, context.Cause(ctx)
		}
		before := time.Now()
		if err := b.connection.FlushTimeout(patience); err != nil {
			return result{}, fmt.Errorf("round trip %d: %w", len(trips)+1, err)
		}
		trips = append(trips, time.Since(before))
	}
	elapsed := time.Since(start)
	slices.Sort(trips)
	median := percentile(trips, 50)
	return result{
		Name:    b.name,
		Value:   1 / median.Seconds(),
		Unit:    "msg/s",
		Count:   len(trips),
		Seconds: elapsed.Seconds(),
		P50:     median.Nanoseconds(),
		P99:     percentile(trips, 99).Nanoseconds(),
	}, nil
}

// percentile takes the value at the nearest rank of a sorted, non-empty list.
func percentile(sorted []time.Duration, percent int) time.Duration {
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}
