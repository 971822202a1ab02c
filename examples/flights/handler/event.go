package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
)

// largestBody is far more than a departure needs.
const largestBody = 64 << 10

// flight is the message: one departure.
type flight struct {
	// Key is the aircraft's tail number.
	Key string `json:"key"`
	// Number counts the departures of this aircraft from 1.
	Number  int64  `json:"number"`
	Carrier string `json:"carrier"`
	Flight  int64  `json:"flight"`
	Origin  string `json:"origin"`
	Dest    string `json:"dest"`
	// Departure is the local time at which the aircraft left.
	Departure string `json:"departure"`
}

// event is a departure with what the lane says about its delivery.
type event struct {
	flight
	// fence sorts as text and rises with every new message of a key, wherever
	// it is handled. Whoever stores something stores the fence beside it, and
	// overwrites only what has a lower one.
	fence string
	// partition served this key when the message came.
	partition int64
	// attempt is 1 unless the lane sent this message before and got no success.
	attempt int64
}

// fenceForm is frozen: ten digits of the stream's incarnation, twenty of the sequence.
var fenceForm = regexp.MustCompile(`^[0-9]{10}-[0-9]{20}$`)

// readEvent takes a CloudEvent in binary mode apart: attributes in headers, the
// message itself as the body. An error means that no retry will ever help.
func readEvent(request *http.Request) (event, error) {
	var e event
	header := request.Header
	for _, name := range []string{"ce-id", "ce-subject", "ce-partitionkey", "ce-sequence"} {
		if header.Get(name) == "" {
			return e, fmt.Errorf("header %s is missing: this is not a message from a lane", name)
		}
	}
	var err error
	if e.partition, err = wholeNumber(header, "lane-partition", 0); err != nil {
		return e, err
	}
	if e.attempt, err = wholeNumber(header, "lane-attempt", 1); err != nil {
		return e, err
	}
	if e.fence = header.Get("lane-fence"); !fenceForm.MatchString(e.fence) {
		return e, fmt.Errorf("header lane-fence is %q: it must be ten digits, a dash and twenty digits", e.fence)
	}
	if e.flight, err = readFlight(request.Body); err != nil {
		return e, err
	}
	if key := header.Get("ce-partitionkey"); key != e.Key {
		return e, fmt.Errorf("header ce-partitionkey is %q, but the departure is of %q", key, e.Key)
	}
	return e, nil
}

func readFlight(body io.Reader) (flight, error) {
	var f flight
	decoder := json.NewDecoder(body)
	if err := decoder.Decode(&f); err != nil {
		return f, fmt.Errorf("the body is not a departure: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return f, errors.New("the body has something after the departure")
	}
	if f.Key == "" {
		return f, errors.New("key is empty: it must be the tail number")
	}
	if f.Number < 1 {
		return f, fmt.Errorf("number is %d: it must be 1 or more", f.Number)
	}
	return f, nil
}

func wholeNumber(header http.Header, name string, least int64) (int64, error) {
	text := header.Get(name)
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < least {
		return 0, fmt.Errorf("header %s is %q: it must be a number from %d up", name, text, least)
	}
	return number, nil
}
