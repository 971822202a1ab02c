package main

import "sync"

// position is where an aircraft was last sent.
type position struct {
	Key    string `json:"key"`
	Number int64  `json:"number"`
	At     string `json:"at"`
	Fence  string `json:"fence"`
}

// positions keeps the last position of every aircraft that this pod has seen.
//
// It shows how to use the fence: what is stored has its fence beside it, and
// only a higher one replaces it, so a repeat, or a late answer of a pod that
// was believed dead, changes nothing. In memory this is a cache and no more:
// a lane may move to another pod at any time. State that counts belongs into a
// database, with the same comparison in the statement that writes it.
type positions struct {
	mutex sync.Mutex
	known map[string]position
}

func newPositions() *positions {
	return &positions{known: make(map[string]position)}
}

// Move takes the aircraft to where the departure leads, unless it is known to
// be further already.
func (p *positions) Move(e event) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if last, known := p.known[e.Key]; known && last.Fence >= e.fence {
		return
	}
	p.known[e.Key] = position{Key: e.Key, Number: e.Number, At: e.Dest, Fence: e.fence}
}

// Of says where an aircraft is, if this pod has seen it.
func (p *positions) Of(key string) (position, bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	found, known := p.known[key]
	return found, known
}
