package hold

// Budget is how the descriptors of a process are divided.
type Budget struct {
	Descriptors int // that the process may have open

	// Clients is how many connections of clients the gateway may hold. Each may
	// need another one to the API, so they are less than half.
	Clients int

	// PerAddress is how many of them one address may hold.
	PerAddress int

	// Admin is how many connections the admin listener may hold. They are part of
	// what clients never get, with files, databases and stores.
	Admin int
}

const (
	leastReserve, mostReserve = 64, 1024
	mostClients               = 1 << 16 // beyond that, memory is what is short: 10 to 20 KB each
	mostPerAddress            = 1024
)

// Divide divides descriptors: an eighth, at least 64 and at most 1024, is kept
// from clients, half of that for the admin listener.
func Divide(descriptors int) Budget {
	reserve := min(mostReserve, max(leastReserve, descriptors/8))
	clients := min(mostClients, max(1, (descriptors-reserve)/2))
	return Budget{
		Descriptors: descriptors, Clients: clients, PerAddress: min(mostPerAddress, max(1, clients/8)),
		Admin: reserve / 2,
	}
}

// defaultDescriptors is for systems that do not say.
const defaultDescriptors = 4096
