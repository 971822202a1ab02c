package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestTheEnvironmentHasDefaultsAndIsRefusedByName(t *testing.T) {
	c, err := readConfig(environment(map[string]string{"POD": "p"}))
	if want := (config{journal: "/journal/flights.ndjson", port: "8080", pod: "p"}); err != nil || c != want {
		t.Errorf("got %+v, %v, want %+v", c, err, want)
	}
	for _, bad := range []map[string]string{
		{"PORT": "http"}, {"PORT": "0"}, {"PORT": "65536"}, {"WORK": "soon"}, {"WORK": "-1s"},
	} {
		_, err := readConfig(environment(bad))
		for name, value := range bad {
			if err == nil || !strings.Contains(err.Error(), name+` is "`+value+`"`) {
				t.Errorf("%s=%s: %v", name, value, err)
			}
		}
	}
}

func TestAJournalContinuesAfterARestartWithoutItsTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.ndjson")
	long := strings.Repeat("x", 5000)
	for _, torn := range []string{"", `{"key":"N2","nu`, long} {
		if err := os.WriteFile(path, []byte("{\"key\":\"N1\"}\n"+torn), 0o600); err != nil {
			t.Fatal(err)
		}
		journal, err := openJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(journal.Append(entry{Key: "N3"}), journal.Close()); err != nil {
			t.Fatal(err)
		}
		written, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(written), "\n")
		if len(lines) != 3 || lines[0] != `{"key":"N1"}` || !strings.HasPrefix(lines[1], `{"key":"N3"`) || lines[2] != "" {
			t.Errorf("after %d torn bytes the journal is %q", len(torn), written)
		}
	}
}

func TestAJournalThatCannotBeWrittenIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "journal.ndjson")
	if _, err := openJournal(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error with the path", err)
	}
}

// The lane is in the middle of a departure when the handler is told to end.
func TestWhatIsInHandIsFinishedWhenTheHandlerIsToldToEnd(t *testing.T) {
	journal, err := openJournal(filepath.Join(t.TempDir(), "journal.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	inner := newHandler(journal, "p", 50*time.Millisecond)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		cancel()
		inner.ServeHTTP(w, request)
	})}
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, server, listener) }()

	r := rig{T: t, url: "http://" + listener.Addr().String()}
	headers, body := departure("N1", 1)
	if code, text := r.send("POST", "/", headers, body); code != http.StatusNoContent {
		t.Errorf("answer %d %q, want 204", code, text)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if size := journal.Read().Size(); size == 0 {
		t.Error("the departure is not in the journal")
	}
}
