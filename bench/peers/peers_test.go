package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPercentileTakesTheNearestRank(t *testing.T) {
	trips := make([]time.Duration, 200)
	for i := range trips {
		trips[i] = time.Duration(i + 1)
	}
	for percent, want := range map[int]time.Duration{50: 100, 99: 198, 100: 200} {
		if got := percentile(trips, percent); got != want {
			t.Errorf("percentile %d of 1..200: got %d, want %d", percent, got, want)
		}
	}
	if got := percentile([]time.Duration{7}, 99); got != 7 {
		t.Errorf("percentile 99 of one value: got %d, want 7", got)
	}
}

func TestEveryNameHasAMeasurementAndEveryMeasurementAPlaceInTheOrder(t *testing.T) {
	for _, name := range order {
		if measurements[name] == nil {
			t.Errorf("%s is in the order but cannot be measured", name)
		}
	}
	for name := range measurements {
		if !slices.Contains(order, name) {
			t.Errorf("%s can be measured but never runs by default", name)
		}
	}
}

func TestOnlyKeepsTheOrderGiven(t *testing.T) {
	got, err := parseNames("nats_go_fetch1_ack, ping_pong")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"nats_go_fetch1_ack", "ping_pong"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestArgumentsThatMakeNoSenseAreRefusedByName(t *testing.T) {
	for _, c := range []struct{ arguments, complaint string }{
		{"-stream S -n 0", "-n is 0"},
		{"-stream S -rounds 10", "-rounds is 10"},
		{"-stream S -only fast", `-only names "fast"`},
		{"-n 10", "-stream is empty"},
		{"-stream S -publish 10 -subject bench.a", `-subject is "bench.a"`},
		{"-stream S -timeout 0s", "-timeout is 0s"},
		{"-stream S surplus", `unexpected argument "surplus"`},
		{"-stream S -payload -1", "-payload is -1"},
	} {
		var out, log bytes.Buffer
		if code := command(context.Background(), strings.Fields(c.arguments), &out, &log); code != 2 {
			t.Errorf("%s: exit code %d, want 2", c.arguments, code)
		}
		if !strings.Contains(log.String(), c.complaint) {
			t.Errorf("%s: said %q, want it to say %q", c.arguments, log.String(), c.complaint)
		}
		if out.Len() > 0 {
			t.Errorf("%s: printed %q on standard output", c.arguments, out.String())
		}
	}
}

func TestPingPongAndPublishOnlyNeedNoStream(t *testing.T) {
	for _, arguments := range []string{"-only ping_pong", "-only none"} {
		if _, err := parseSettings(strings.Fields(arguments), &bytes.Buffer{}); err != nil {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

func TestAServerThatDoesNotAnswerIsNamed(t *testing.T) {
	var out, log bytes.Buffer
	// Port 1 of the loopback address: refused at once on any sane machine.
	arguments := []string{"-url", "nats://127.0.0.1:1", "-only", "ping_pong"}
	if code := command(context.Background(), arguments, &out, &log); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if !strings.Contains(log.String(), "cannot connect to nats://127.0.0.1:1") {
		t.Errorf("said %q", log.String())
	}
}
