package region_test

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/headgate-io/headgate/identity/region"
)

func Example() {
	// Load("dbip-country-ipv4.csv.gz", "dbip-country-ipv6.csv.gz") reads files.
	table, err := region.Parse("example.csv", strings.NewReader(
		"192.0.2.0,192.0.2.127,DE\n"+
			"192.0.2.128,192.0.2.255,FR\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range []string{"192.0.2.7", "::ffff:192.0.2.200", "203.0.113.9", "127.0.0.1"} {
		fmt.Printf("%s is in %q\n", a, table.Region(netip.MustParseAddr(a)))
	}
	// Output:
	// 192.0.2.7 is in "DE"
	// ::ffff:192.0.2.200 is in "FR"
	// 203.0.113.9 is in ""
	// 127.0.0.1 is in ""
}
