package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// line is a departure as the lane gives it to a program that it runs itself:
// one JSON object with what the headers say otherwise.
type line struct {
	ID        string `json:"id"`
	Key       string `json:"partitionkey"`
	Partition int64  `json:"lanepartition"`
	Attempt   int64  `json:"laneattempt"`
	Fence     string `json:"lanefence"`
	Data      []byte `json:"data_base64"`
}

// answer is the line back.
type answer struct {
	ID     string `json:"id"`
	Result string `json:"result"`
	Reason string `json:"reason,omitempty"`
}

// serveLines handles one line after another until there are no more: then the
// lane has ended.
func serveLines(in io.Reader, out io.Writer, journal *journal, pod string, work time.Duration) error {
	lines, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var l line
		if err := lines.Decode(&l); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("what the lane wrote is no line of a message: %w", err)
		}
		if err := answers.Encode(l.handle(journal, pod, work)); err != nil {
			return fmt.Errorf("the lane does not read: %w", err)
		}
	}
}

func (l line) handle(journal *journal, pod string, work time.Duration) answer {
	start := time.Now()
	f, err := readFlight(bytes.NewReader(l.Data))
	if err == nil && l.Key != f.Key {
		err = fmt.Errorf("partitionkey is %q, but the departure is of %q", l.Key, f.Key)
	}
	if err != nil {
		slog.Warn("refused", "id", l.ID, "reason", err.Error())
		return answer{ID: l.ID, Result: "permanent", Reason: err.Error()}
	}
	time.Sleep(work)
	err = journal.Append(entry{
		Key:       f.Key,
		Number:    f.Number,
		Fence:     l.Fence,
		Partition: l.Partition,
		Attempt:   l.Attempt,
		Start:     start.UnixNano(),
		End:       time.Now().UnixNano(),
		Pod:       pod,
	})
	if err != nil {
		slog.Error("not done", "id", l.ID, "error", err.Error())
		return answer{ID: l.ID, Result: "retry", Reason: err.Error()}
	}
	return answer{ID: l.ID, Result: "done"}
}
