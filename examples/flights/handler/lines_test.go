package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLinesAreAnsweredOneAfterAnotherOnceTheyAreInTheJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.ndjson")
	journal, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	of := func(sequence int, key, body string) string {
		data := base64.StdEncoding.EncodeToString([]byte(body))
		return fmt.Sprintf(`{"id":"F/%d","partitionkey":%q,"lanepartition":1,"laneattempt":2,"lanefence":"0000000001-%020d","headers":{},"data_base64":%q}`, sequence, key, sequence, data) + "\n"
	}
	in := of(1, "N1", `{"key":"N1","number":1}`) + of(2, "N2", "no departure") + of(3, "N3", `{"key":"N1","number":2}`) + of(4, "N1", `{"key":"N1","number":2}`)
	var out strings.Builder
	if err := serveLines(strings.NewReader(in), &out, journal, "p", 0); err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	wanted := []string{
		`{"id":"F/1","result":"done"}`,
		`{"id":"F/2","result":"permanent","reason":"the body is not a departure`,
		`{"id":"F/3","result":"permanent","reason":"partitionkey is \"N3\", but the departure is of \"N1\""}`,
		`{"id":"F/4","result":"done"}`,
	}
	if len(answers) != len(wanted) {
		t.Fatalf("answers are %q", answers)
	}
	for i, want := range wanted {
		if !strings.HasPrefix(answers[i], want) {
			t.Errorf("answer %q, want %q", answers[i], want)
		}
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`{"key":"N1","number":1,"fence":"0000000001-00000000000000000001","partition":1,"attempt":2,`,
		`{"key":"N1","number":2,"fence":"0000000001-00000000000000000004","partition":1,"attempt":2,`,
	} {
		if lines := strings.Split(string(written), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[i], want) {
			t.Errorf("the journal is %q, want %q", written, want)
		}
	}
}

func TestWhatIsNoLineEndsTheProgram(t *testing.T) {
	var out strings.Builder
	err := serveLines(strings.NewReader("hello\n"), &out, nil, "p", 0)
	if err == nil || out.Len() != 0 {
		t.Errorf("ended with %v, said %q", err, out.String())
	}
}
