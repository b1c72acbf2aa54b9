package daemon

// Envelopes is envelopes, for tests.
var Envelopes = envelopes
