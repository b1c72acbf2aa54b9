// What Build appends to the module (wasm/layout.go writes it): endpoints, rules, keys, and the texts of answers.
#ifndef DATA_H
#define DATA_H
#include "bucket.h"
#include "endpoint.h"

#define MAGIC 0x31454748 // HGE1
#define MAX_TAKES 16     // rules that apply to one request

struct header {
	u32 magic, size;
	u64 sum; // of all that follows
	u32 memory, room; // where buckets begin, and where what is left begins
	u32 sets, pages;  // how many less one: powers of two
	u32 flags, hops, v6bits;
	u32 atTable, endpoints, atMatrix, atCosts, atNumbers, atLists, atRules;
	u32 keys, atKeys, atHash;
	u32 refused, atRefused; // methods that no request may have
	u32 allowable, atAllowable; // methods that Allow may name, in the order of letters
	u32 atRefusals;         // what is answered, by fault, then NO_PATH and NO_METHOD
	struct text keyHeader;  // the name of the field that holds a key
	struct text denied, violated, comma, end, lost; // parts of problem details
};
enum { REJECT_UNKNOWN = 1, USES_SHARED = 2 };
enum { NO_PATH = EMPTY_TAIL + 1, NO_METHOD };

struct list {
	u32 atEntries, count;
	struct text policies; // RateLimit-Policy
};
struct entry {
	u32 rule, flags;
};
enum { SHADOW = 1, EVERY_ENDPOINT = 2 };

struct rule {
	struct shape shape;
	i64 limit, per, burst;
	u64 number; // the same in another build with the same rule and limit
	u32 subject, flags, class, unused;
	struct text name, detail, title;
};
enum { SHARED = 1, OPEN = 2 };
// Of policy.Subject.
enum { PRINCIPAL, IP, PRINCIPAL_IP, PROJECT, REGION, ENDPOINT, SITE = 8 };

struct key {
	u8 digest[32];
	u64 number, project; // project 0 is none
	u32 class, unused;
};

#endif
