package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// handler answers the lane and whoever looks on.
type handler struct {
	journal   *journal
	positions *positions
	pod       string
	// work is how long a departure takes, for trying out slow handlers.
	work time.Duration
}

func newHandler(journal *journal, pod string, work time.Duration) http.Handler {
	h := &handler{journal: journal, positions: newPositions(), pod: pod, work: work}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", h.handle)
	mux.HandleFunc("GET /journal", h.readJournal)
	mux.HandleFunc("GET /aircraft/{key}", h.readPosition)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// handle is the whole contract with the lane, by its answers: 204, the
// departure is done and the next may come; 400, it will never work; 500, try
// again. No answer at all counts as not done as well.
func (h *handler) handle(w http.ResponseWriter, request *http.Request) {
	start := time.Now()
	request.Body = http.MaxBytesReader(w, request.Body, largestBody)
	e, err := readEvent(request)
	if err != nil {
		slog.Warn("refused", "id", request.Header.Get("ce-id"), "reason", err.Error())
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case <-time.After(h.work):
	case <-request.Context().Done():
		// The lane hung up: it is stopping, or it no longer owns the message.
		// Nothing was done yet, so nothing is written down.
		return
	}
	err = h.journal.Append(entry{
		Key:       e.Key,
		Number:    e.Number,
		Fence:     e.fence,
		Partition: e.partition,
		Attempt:   e.attempt,
		Start:     start.UnixNano(),
		End:       time.Now().UnixNano(),
		Pod:       h.pod,
	})
	if err != nil {
		slog.Error("not done", "id", request.Header.Get("ce-id"), "error", err.Error())
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.positions.Move(e)
	w.WriteHeader(http.StatusNoContent)
}

// readJournal gives the journal, or a part of it: a Range header is honoured,
// so that a reader can ask for what was added since it last looked.
func (h *handler) readJournal(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	http.ServeContent(w, request, "", time.Time{}, h.journal.Read())
}

func (h *handler) readPosition(w http.ResponseWriter, request *http.Request) {
	key := request.PathValue("key")
	found, known := h.positions.Of(key)
	if !known {
		http.Error(w, fmt.Sprintf("this pod has not seen aircraft %q", key), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(found); err != nil {
		slog.Warn("the reader went away", "error", err.Error())
	}
}
