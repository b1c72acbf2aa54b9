package redis

// Parse is parse, and AppendBucket is appendBucket.
var (
	Parse        = parse
	AppendBucket = appendBucket
)
