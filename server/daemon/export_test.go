package daemon

// Envelopes is envelopes, for tests.
var Envelopes = envelopes

// Faulty is faulty, for tests.
var Faulty = faulty
