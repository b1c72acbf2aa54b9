package redis

// Parse is parse.
var Parse = parse
