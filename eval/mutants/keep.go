package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
)

// memory is outcomes of bugs, by all that they are: a run takes half an hour, and may be broken off.
type memory map[string]outcome

// recall reads a file of them; one that is not there is empty.
func recall(file string) (memory, error) {
	known := memory{}
	if file == "" {
		return known, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	return known, err
}

func (k memory) find(m Mutant) outcome { return k[m.Name+"\n"+m.Old+"\n"+m.New] }

// note writes the file anew with one more.
func (k memory) note(file string, r result) error {
	if file == "" || r.err != nil {
		return nil
	}
	k[r.Name+"\n"+r.Old+"\n"+r.New] = r.outcome
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
