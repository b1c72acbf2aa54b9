package region_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/identity/region"
)

// samples are real ranges: see testdata/ORIGIN.md.
var samples = []string{"testdata/dbip-country-lite-ipv4.sample.csv.gz", "testdata/dbip-country-lite-ipv6.sample.csv.gz"}

func load(t testing.TB, files ...string) *region.Table {
	t.Helper()
	table, err := region.Load(files...)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func parse(t testing.TB, lines string) *region.Table {
	t.Helper()
	table, err := region.Parse("t.csv", strings.NewReader(lines))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// span is one line of a file, for the slow twin.
type span struct {
	first, last netip.Addr
	region      string
}

type spans []span

// find looks at every line.
func (all spans) find(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.IsUnspecified() {
		return ""
	}
	own := a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast()
	for _, s := range all {
		if s.first.Is4() == a.Is4() && s.first.Compare(a) <= 0 && a.Compare(s.last) <= 0 {
			if own && !within(s.first, s.last) {
				return ""
			}
			return s.region
		}
	}
	return ""
}

func readSpans(t testing.TB, file string) (all spans) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(unzipped); lines.Scan(); {
		fields := strings.Split(lines.Text(), ",")
		all = append(all, span{netip.MustParseAddr(fields[0]), netip.MustParseAddr(fields[1]), fields[2]})
	}
	return all
}

func TestRealTable(t *testing.T) {
	table := load(t, samples...)
	four, six := readSpans(t, samples[0]), readSpans(t, samples[1])
	if len(four) < 80_000 || len(six) < 80_000 || table.Len() != len(four)+len(six) || table.Regions() < 200 {
		t.Fatalf("%d and %d lines are %d ranges of %d regions", len(four), len(six), table.Len(), table.Regions())
	}
	if most := 6*2*len(four) + 18*2*len(six); table.Bytes() > most {
		t.Errorf("the table has %d bytes, want at most %d", table.Bytes(), most)
	}
	for _, all := range []spans{four, six} {
		for i, s := range all {
			// Each boundary, and what is beside it: the neighbour's or nobody's.
			neighbour := func(j int, a netip.Addr) string {
				if 0 <= j && j < len(all) && all[j].first.Compare(a) <= 0 && a.Compare(all[j].last) <= 0 {
					return all[j].region
				}
				return ""
			}
			for _, c := range [...]struct {
				a    netip.Addr
				want string
			}{
				{s.first, s.region}, {s.last, s.region},
				{s.first.Prev(), neighbour(i-1, s.first.Prev())}, {s.last.Next(), neighbour(i+1, s.last.Next())},
			} {
				if c.a.IsPrivate() || !c.a.IsValid() {
					continue
				}
				if got := table.Region(c.a); got != c.want {
					t.Fatalf("Region(%v) = %q, want %q", c.a, got, c.want)
				}
			}
		}
	}
	random := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		var b [16]byte
		binary.BigEndian.PutUint32(b[:4], random.Uint32())
		if a := netip.AddrFrom4([4]byte(b[:4])); table.Region(a) != four.find(a) {
			t.Errorf("Region(%v) = %q, want %q", a, table.Region(a), four.find(a))
		}
		s := six[random.IntN(len(six))]
		b = s.first.As16()
		for i := 4 + random.IntN(12); i < 16; i++ {
			b[i] = byte(random.Uint32())
		}
		if a := netip.AddrFrom16(b); table.Region(a) != six.find(a) {
			t.Errorf("Region(%v) = %q, want %q", a, table.Region(a), six.find(a))
		}
	}
}

func TestRegion(t *testing.T) {
	table := parse(t, `# who they are
1.0.0.0,1.0.0.255,AU
1.0.1.0,1.0.3.255,CN
1.0.8.0,1.0.8.0,JP

9.0.0.0,9.255.255.255,ZZ
0.0.0.0,0.255.255.255,AU
10.0.0.0,10.255.255.255,AU
127.0.0.0,127.255.255.255,AU
169.254.0.0,169.254.255.255,AU
255.255.255.255,255.255.255.255,US
2001:200::,2001:200:ffff:ffff:ffff:ffff:ffff:ffff,JP
2001:db8::1,2001:db8::1,DE
fc00::,ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,US
`)
	for in, want := range map[string]string{
		"1.0.0.0": "AU", "1.0.0.255": "AU", "1.0.1.0": "CN", "1.0.3.255": "CN", "1.0.4.0": "", "1.0.7.255": "",
		"1.0.8.0": "JP", "1.0.8.1": "", "9.1.1.1": "", "0.0.0.1": "AU", "255.255.255.255": "US", "255.255.255.254": "",
		"::ffff:1.0.0.1": "AU", "2001:200::": "JP", "2001:200:ffff:ffff:ffff:ffff:ffff:ffff": "JP", "2001:201::": "",
		"2001:db8::": "", "2001:db8::1": "DE", "2001:db8::2": "", "::1:1": "", "ffff::": "US", "ff02::1%eth0": "US",

		// What means something else in every network.
		"0.0.0.0": "", "::1": "", "fd00::1": "", "fe80::1%eth0": "",
		// But for ranges of just such a network.
		"10.1.2.3": "AU", "127.0.0.1": "AU", "169.254.1.1": "AU", "::ffff:10.1.2.3": "AU", "192.168.0.1": "",
	} {
		if got := table.Region(netip.MustParseAddr(in)); got != want {
			t.Errorf("Region(%s) = %q, want %q", in, got, want)
		}
	}
	if got := table.Region(netip.Addr{}); got != "" {
		t.Errorf("the region of no address is %q, want none", got)
	}
	if got := table.Region(netip.MustParseAddr("8.8.8.8")); got != "" {
		t.Errorf("the region of 8.8.8.8 is %q, want none", got)
	}
}

// TestFilesMayInterleave: the order of files, and of lines, does not matter.
func TestFilesMayInterleave(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := write("a.csv", "2.0.0.0,2.0.0.255,FR\r\n2001:db8::,2001:db8::ff,DE\r\n1.0.0.0,1.0.0.255,AU")
	b := write("b.csv", "1.0.1.0,1.0.1.255,AU\n2001:db8::100,2001:db8::1ff,FR\n")
	table := load(t, a, b)
	for in, want := range map[string]string{
		"1.0.0.9":       "AU",
		"1.0.1.9":       "AU",
		"2.0.0.9":       "FR",
		"2001:db8::9":   "DE",
		"2001:db8::109": "FR",
		"1.0.2.0":       "",
	} {
		if got := table.Region(netip.MustParseAddr(in)); got != want {
			t.Errorf("Region(%s) = %q, want %q", in, got, want)
		}
	}
	_, err := region.Load(a, write("c.csv", "1.0.0.128,1.0.2.0,CN\n"))
	if err == nil || !strings.Contains(err.Error(), "c.csv:1: the range from 1.0.0.128 overlaps that of ") ||
		!strings.Contains(err.Error(), "a.csv:3, from 1.0.0.0 to 1.0.0.255") {
		t.Errorf("Load of files that overlap = %v, want both lines", err)
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "t.csv: has no range"},
		{"comments alone", "# nothing\n", "t.csv: has no range"},
		{"two fields", "1.0.0.0,1.0.0.255", `t.csv:1: "1.0.0.0,1.0.0.255" is not first,last,region`},
		{"four fields", "1.0.0.0,1.0.0.255,AU,x", `t.csv:1: region is "AU,x", want 1 to 16 letters`},
		{"a heading", "start,end,country",
			`t.csv:1: "start" is no address, want one such as 1.0.0.0 or 2001:db8::; "end" is no address`},
		{"numbers", "16777216,16777471,AU", `t.csv:1: "16777216" is no address`},
		{"quotes", `"1.0.0.0","1.0.0.255","AU"`, `is no address`},
		{"a prefix", "1.0.0.0/24,1.0.0.255,AU", `"1.0.0.0/24" is no address`},
		{"octal", "01.0.0.0,1.0.0.255,AU", `"01.0.0.0" is no address`},
		{"a space", "1.0.0.0, 1.0.0.255,AU", `" 1.0.0.255" is no address`},
		{"a zone", "fe80::1%eth0,fe80::2,AU", `"fe80::1%eth0" is no address`},
		{"mapped", "::ffff:1.0.0.0,::ffff:1.0.0.255,AU", `"::ffff:1.0.0.0" is no address`},
		{"two families", "1.0.0.0,2001:db8::,AU", "begins at 1.0.0.0 and ends at 2001:db8::, want one family"},
		{"backwards", "1.0.0.255,1.0.0.0,AU", "begins at 1.0.0.255 and ends before, at 1.0.0.0"},
		{"overlap", "1.0.0.0,1.0.0.255,AU\n1.0.0.255,1.0.1.0,CN",
			"t.csv:2: the range from 1.0.0.255 overlaps that of t.csv:1, from 1.0.0.0 to 1.0.0.255"},
		{"twice", "1.0.0.0,1.0.0.255,AU\n1.0.0.0,1.0.0.255,AU", "t.csv:2: the range from 1.0.0.0 overlaps"},
		{"overlap of IPv6", "::1:0,::2:0,AU\n::,::1:0,AU", "t.csv:1: the range from ::1:0 overlaps that of t.csv:2"},
		{"a long region", "1.0.0.0,1.0.0.255,AAAAAAAAAAAAAAAAA", "want 1 to 16 letters"},
		{"a region of other bytes", "1.0.0.0,1.0.0.255,\x1b[31m", `region is "\x1b[31m"`},
		{"a region called unknown", "1.0.0.0,1.0.0.255,Unknown", `region is "Unknown"`},
		{"a long region of other letters", "1.0.0.0,1.0.0.255," + strings.Repeat("x", 59) + "ää",
			`region is "` + strings.Repeat("x", 59) + `…", want`},
		{"a long line", "1.0.0.0,1.0.0.255,AU\n" + strings.Repeat("x", 2000),
			"t.csv:2: the line has more than 1024 bytes"},
		{"all of them", strings.Repeat("x\n", 20), "t.csv:10: \"x\" is not first,last,region\nt.csv: and perhaps more"},
	} {
		_, err := region.Parse("t.csv", strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Parse = %v, want %q", c.name, err, c.want)
		}
	}
	var many strings.Builder
	for i := range 4097 {
		fmt.Fprintf(&many, "1.0.%d.%d,1.0.%d.%d,r%d\n", i>>8, i&255, i>>8, i&255, i)
	}
	if _, err := region.Parse("t.csv", strings.NewReader(many.String())); err == nil ||
		!strings.Contains(err.Error(), "t.csv:4097: region r4096 is one more than 4096") {
		t.Errorf("4097 regions: Parse = %v, want that it is one too many", err)
	}
	if _, err := region.Load(); err == nil || !strings.Contains(err.Error(), "0 files, want 1 to 64") {
		t.Errorf("Load() = %v", err)
	}
	if _, err := region.Load("testdata/absent.csv", "testdata/ORIGIN.md"); err == nil ||
		!strings.Contains(err.Error(), "absent.csv") || !strings.Contains(err.Error(), "ORIGIN.md:3") {
		t.Errorf("Load of two faulty files = %v, want both", err)
	}
}

// TestBrokenCompression: a file that ends too early is no smaller table.
func TestBrokenCompression(t *testing.T) {
	whole, err := os.ReadFile(samples[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"cut off": whole[:len(whole)/2], "no checksum": whole[:len(whole)-4], "header alone": whole[:3],
		"garbage": append([]byte{0x1f, 0x8b}, "garbage"...),
	} {
		if _, err := region.Parse("t.csv.gz", bytes.NewReader(content)); err == nil ||
			!strings.HasPrefix(err.Error(), "t.csv.gz") {
			t.Errorf("%s: Parse = %v, want an error that names the file", name, err)
		}
	}
	if _, err := region.Parse("t.csv", io.MultiReader(strings.NewReader("1.0.0.0,1.0.0.255,AU\n"),
		errReader{})); !errors.Is(err, errBroken) {
		t.Errorf("Parse of a broken disk = %v, want its error", err)
	}
}

var errBroken = errors.New("broken")

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errBroken }

func TestRegionAllocatesNothing(t *testing.T) {
	table := load(t, samples...)
	for _, in := range []string{"203.0.113.9", "2001:200::1", "::ffff:1.0.0.1", "127.0.0.1"} {
		a := netip.MustParseAddr(in)
		if n := testing.AllocsPerRun(100, func() { _ = table.Region(a) }); n != 0 {
			t.Errorf("Region(%v) allocates %v times, want 0", a, n)
		}
	}
}

// FuzzParse: whatever the file, what is read is what the slow twin finds.
func FuzzParse(f *testing.F) {
	f.Add("1.0.0.0,1.0.0.255,AU\n1.0.1.0,1.0.3.255,CN\n", uint32(0x01000001))
	f.Add("0.0.0.0,255.255.255.255,A\n::,ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,B\n", uint32(0))
	f.Add("1.2.3.4,1.2.3.4,ZZ\n2001:db8::,2001:db8::1,-\n", uint32(0x01020304))
	f.Add("\x1f\x8b", uint32(1))
	f.Fuzz(func(t *testing.T, text string, probe uint32) {
		table, err := region.Parse("t.csv", strings.NewReader(text))
		if err != nil || strings.HasPrefix(text, "\x1f\x8b") {
			return
		}
		var all spans
		for _, line := range strings.Split(text, "\n") {
			line = strings.TrimSuffix(line, "\r")
			if line == "" || line[0] == '#' {
				continue
			}
			fields := strings.SplitN(line, ",", 3)
			if fields[2] == "ZZ" || fields[2] == "-" {
				fields[2] = ""
			}
			all = append(all, span{netip.MustParseAddr(fields[0]), netip.MustParseAddr(fields[1]), fields[2]})
		}
		probes := []netip.Addr{netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, probe)))}
		for _, s := range all {
			probes = append(probes, s.first, s.last, s.first.Prev(), s.last.Next())
		}
		for _, a := range probes {
			if got, want := table.Region(a), all.find(a); a.IsValid() && got != want {
				t.Errorf("Region(%v) = %q, want %q", a, got, want)
			}
		}
	})
}

func BenchmarkRegion(b *testing.B) {
	table := load(b, samples...)
	random := rand.New(rand.NewPCG(7, 8))
	var four, six [4096]netip.Addr
	all := readSpans(b, samples[1])
	for i := range four {
		four[i] = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, random.Uint32())))
		six[i] = all[random.IntN(len(all))].last
	}
	for name, addrs := range map[string]*[4096]netip.Addr{"IPv4": &four, "IPv6": &six} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				table.Region(addrs[i&4095])
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		table := load(b, samples...)
		b.ReportMetric(float64(table.Bytes())/float64(table.Len()), "bytes/range")
	}
}

// within reports whether two addresses are of one network that is nobody's on
// the Internet.
func within(first, last netip.Addr) bool {
	for _, text := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16",
		"fc00::/7", "fe80::/10", "::1/128"} {
		if p := netip.MustParsePrefix(text); p.Contains(first) && p.Contains(last) {
			return true
		}
	}
	return false
}

// TestOwnNetworks: a range of a private network is the operator's word, one that
// goes beyond it is not about that network.
func TestOwnNetworks(t *testing.T) {
	table, err := region.Parse("mesh.csv", strings.NewReader(strings.Join([]string{
		"9.0.0.0,9.255.255.255,US",
		"10.0.0.0,10.0.0.255,EU", "10.0.2.0,10.0.2.255,AP", "10.0.3.0,10.0.3.255,ZZ", "11.0.0.0,172.255.255.255,US",
		"fd00::,fd00::ffff,EU", "fe80::,fe80::ffff,EU",
	}, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"10.0.0.0": "EU", "10.0.0.7": "EU", "::ffff:10.0.0.255": "EU", "10.0.1.0": "", "10.0.2.1": "AP", "10.0.3.1": "",
		"10.0.4.1": "",
		"9.1.1.1":  "US", "11.0.0.1": "US", "172.15.0.1": "US", "172.16.0.1": "", "127.0.0.1": "", "fd00::1": "EU",
		"fd01::1": "", "fe80::1%eth0": "EU",
	} {
		if got := table.Region(netip.MustParseAddr(text)); got != want {
			t.Errorf("Region(%s) = %q, want %q", text, got, want)
		}
	}
	if table.Own() != 4 {
		t.Errorf("Own() = %d, want 4", table.Own())
	}
}
