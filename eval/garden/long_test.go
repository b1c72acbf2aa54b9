//go:build long

package main

import (
	"math/rand/v2"
	"testing"
)

// TestGarden asks every server of the garden: whether it still is what kinds.json says, and, with
// some thousand requests, whether all that doctor approves holds.
func TestGarden(t *testing.T) {
	seed := rand.Uint64()
	for _, s := range all {
		t.Run(s.kind, func(t *testing.T) {
			t.Parallel()
			walk(t, s.kind, 6000, seed)
		})
	}
}

// TestExploitsOfTheOthers is TestExploits with servers that have to be installed.
func TestExploitsOfTheOthers(t *testing.T) {
	for kind, targets := range map[string][]string{
		"tomcat": {"/public/a%2fb/../../v1/admin/users/7", "/public/a;x%2fb/../../v1/admin/users/7",
			"/v1/items/search%3b7", "/v1/exports;x"},
		"spring": {"/v1/items/search%3b7", "/public/a%2fb/../../v1/admin/users/7"},
		"apache": {"/public/a%2fb/../../v1/admin/users/7", "/v1/items/;7"},
		"express": {"/rpc?[action]x=login", "/rpc?[action]z[0]=login", "/rpc?[action].=login", "/V1/Items/Search",
			"/public/", "form:user=decoy&[user]x=victim"},
		"sinatra": {"/rpc?action]=login", "/rpc?x=1;action=login", "form:user=decoy&[user]x=victim"},
		"php":     {"/rpc?+action=login", "/v1//items", "form:user=decoy&+user=victim"},
		"flask":   {"/v1/items/;7", "/v1/items/..", "/v1/items/a%2Fb"},
	} {
		s, _ := find(kind)
		check(t, s, targets)
	}
}
