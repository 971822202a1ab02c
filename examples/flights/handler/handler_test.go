package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// rig is a handler on a real port with a journal of its own.
type rig struct {
	*testing.T
	url, path string
}

func start(t *testing.T) rig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal.ndjson")
	journal, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(newHandler(journal, "flights-2-abc", 0))
	t.Cleanup(func() {
		server.Close()
		if err := journal.Close(); err != nil {
			t.Error(err)
		}
	})
	return rig{T: t, url: server.URL, path: path}
}

// departure is what the lane would send for one number of one aircraft.
func departure(key string, number int) (map[string]string, string) {
	headers := map[string]string{
		"ce-specversion":  "1.0",
		"ce-id":           fmt.Sprintf("FLIGHTS/%d", number),
		"ce-source":       "/nats/FLIGHTS",
		"ce-type":         "dev.lanekeeper.message",
		"ce-subject":      "flights." + key,
		"ce-partitionkey": key,
		"ce-sequence":     fmt.Sprint(number),
		"lane-partition":  "2",
		"lane-attempt":    "1",
		"lane-fence":      fmt.Sprintf("%010d-%020d", 1, number),
	}
	body := fmt.Sprintf(`{"key":%q,"number":%d,"carrier":"UA","flight":1545,"origin":"EWR","dest":"A%d","departure":"2013-01-01T05:17"}`, key, number, number)
	return headers, body
}

func (r rig) send(method, path string, headers map[string]string, body string) (int, string) {
	r.Helper()
	request, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (r rig) entries(text string) []entry {
	r.Helper()
	var entries []entry
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.Fatalf("journal line %q: %v", lines.Text(), err)
		}
		entries = append(entries, e)
	}
	return entries
}

func TestADepartureIsInTheJournalBeforeItIsAnswered(t *testing.T) {
	r := start(t)
	headers, body := departure("N14228", 7)
	headers["lane-attempt"] = "3"
	if code, text := r.send("POST", "/", headers, body); code != http.StatusNoContent {
		t.Fatalf("answer %d %q, want 204", code, text)
	}
	// Read from the file, as somebody would after the process was killed now.
	written, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	entries := r.entries(string(written))
	if len(entries) != 1 {
		t.Fatalf("%d lines in the journal, want 1", len(entries))
	}
	got := entries[0]
	if got.Start <= 0 || got.End < got.Start {
		t.Errorf("handled from %d to %d", got.Start, got.End)
	}
	got.Start, got.End = 0, 0
	want := entry{Key: "N14228", Number: 7, Fence: headers["lane-fence"], Partition: 2, Attempt: 3, Pod: "flights-2-abc"}
	if got != want {
		t.Errorf("journal has %+v, want %+v", got, want)
	}
}

func TestARepeatIsAnsweredAndWrittenDownAgain(t *testing.T) {
	r := start(t)
	headers, body := departure("N14228", 1)
	for range 2 {
		if code, text := r.send("POST", "/", headers, body); code != http.StatusNoContent {
			t.Fatalf("answer %d %q, want 204", code, text)
		}
	}
	if _, text := r.send("GET", "/journal", nil, ""); len(r.entries(text)) != 2 {
		t.Errorf("journal is %q, want two lines", text)
	}
}

func TestWhatIsNoDepartureIsRefusedWithAReasonAndNotWrittenDown(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(headers map[string]string, body *string)
		reason string
	}{
		"no id":               {func(h map[string]string, _ *string) { delete(h, "ce-id") }, "header ce-id is missing"},
		"no subject":          {func(h map[string]string, _ *string) { delete(h, "ce-subject") }, "header ce-subject is missing"},
		"no key":              {func(h map[string]string, _ *string) { delete(h, "ce-partitionkey") }, "header ce-partitionkey is missing"},
		"no sequence":         {func(h map[string]string, _ *string) { delete(h, "ce-sequence") }, "header ce-sequence is missing"},
		"a word as partition": {func(h map[string]string, _ *string) { h["lane-partition"] = "two" }, `header lane-partition is "two"`},
		"attempt nought":      {func(h map[string]string, _ *string) { h["lane-attempt"] = "0" }, `header lane-attempt is "0"`},
		"a short fence":       {func(h map[string]string, _ *string) { h["lane-fence"] = "1-7" }, `header lane-fence is "1-7"`},
		"another key":         {func(h map[string]string, _ *string) { h["ce-partitionkey"] = "N1" }, `header ce-partitionkey is "N1"`},
		"no JSON":             {func(_ map[string]string, b *string) { *b = "hello" }, "the body is not a departure"},
		"an empty body":       {func(_ map[string]string, b *string) { *b = "" }, "the body is not a departure"},
		"two departures":      {func(_ map[string]string, b *string) { *b += *b }, "the body has something after"},
		"number nought":       {func(_ map[string]string, b *string) { *b = `{"key":"N14228"}` }, "number is 0"},
		"nameless":            {func(_ map[string]string, b *string) { *b = `{"number":1}` }, "key is empty"},
		"too long":            {func(_ map[string]string, b *string) { *b = strings.Repeat(" ", largestBody) + *b }, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			headers, body := departure("N14228", 1)
			c.spoil(headers, &body)
			code, text := r.send("POST", "/", headers, body)
			if code != http.StatusBadRequest || !strings.Contains(text, c.reason) {
				t.Errorf("answer %d %q, want 400 with %q", code, text, c.reason)
			}
			if _, text := r.send("GET", "/journal", nil, ""); text != "" {
				t.Errorf("journal is %q, want nothing", text)
			}
		})
	}
}

func TestOnlyAHigherFenceMovesAnAircraft(t *testing.T) {
	r := start(t)
	for _, number := range []int{1, 2, 1} {
		headers, body := departure("N14228", number)
		r.send("POST", "/", headers, body)
	}
	code, text := r.send("GET", "/aircraft/N14228", nil, "")
	if code != http.StatusOK || !strings.Contains(text, `"number":2,"at":"A2"`) {
		t.Errorf("answer %d %q, want number 2 at A2", code, text)
	}
	if code, text := r.send("GET", "/aircraft/N1", nil, ""); code != http.StatusNotFound {
		t.Errorf("an aircraft never seen: answer %d %q, want 404", code, text)
	}
}

func TestAReaderCanAskForWhatWasAddedSince(t *testing.T) {
	r := start(t)
	headers, body := departure("N14228", 1)
	r.send("POST", "/", headers, body)
	_, first := r.send("GET", "/journal", nil, "")
	headers, body = departure("N14228", 2)
	r.send("POST", "/", headers, body)
	code, rest := r.send("GET", "/journal", map[string]string{"Range": fmt.Sprintf("bytes=%d-", len(first))}, "")
	entries := r.entries(rest)
	if code != http.StatusPartialContent || len(entries) != 1 || entries[0].Number != 2 {
		t.Errorf("answer %d %q, want 206 with number 2 alone", code, rest)
	}
}

func TestManyLanesAtOnceLeaveWholeLines(t *testing.T) {
	r := start(t)
	const lanes, each = 8, 50
	var group sync.WaitGroup
	for lane := range lanes {
		group.Add(1)
		go func() {
			defer group.Done()
			for number := 1; number <= each; number++ {
				headers, body := departure(fmt.Sprintf("N%d", lane), number)
				if code, text := r.send("POST", "/", headers, body); code != http.StatusNoContent {
					t.Errorf("answer %d %q, want 204", code, text)
				}
			}
		}()
	}
	group.Wait()
	_, text := r.send("GET", "/journal", nil, "")
	if got := len(r.entries(text)); got != lanes*each {
		t.Errorf("%d lines in the journal, want %d", got, lanes*each)
	}
}

func TestOtherMethodsAndPathsAreNotTheLane(t *testing.T) {
	r := start(t)
	if code, text := r.send("GET", "/healthz", nil, ""); code != http.StatusOK || text != "ok\n" {
		t.Errorf("healthz answered %d %q", code, text)
	}
	if code, _ := r.send("PUT", "/", nil, ""); code != http.StatusMethodNotAllowed {
		t.Errorf("PUT answered %d, want 405", code)
	}
	if code, _ := r.send("POST", "/elsewhere", nil, ""); code != http.StatusNotFound {
		t.Errorf("another path answered %d, want 404", code)
	}
}
