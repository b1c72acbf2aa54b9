package main

import (
	"fmt"
	"math"
	"testing"
)

// spread is a mean of runs, and by how much one run is off.
type spread struct{ mean, deviation float64 }

// holds reports whether the mean of 30 runs of ours is one of the same runs as 60 of somebody
// else's: within three standard deviations of the difference, and a little for what two programs read
// differently in one description.
func (s spread) holds(t *testing.T, what string, got, part, least float64) {
	t.Helper()
	if off := 3*s.deviation*math.Sqrt(1.0/30+1.0/60) + part*s.mean + least; !(math.Abs(got-s.mean) <= off) {
		t.Errorf("%s is %.1f, want %.1f ± %.1f", what, got, s.mean, off)
	}
}

// Every curve of the figure at every load, against another simulation of the same description: 60 runs of it, with
// another generator and another implementation of each algorithm. The paper's text has figures of 500 and 800
// requests alone, which the other tests hold.
func TestEveryLoad(t *testing.T) {
	type curve struct {
		name             string
		seconds, refused [5]spread // at 400 to 800 requests
	}
	for i, curves := range [][]curve{
		{
			{"UB", [5]spread{{272, 36}, {327, 39}, {389, 28}, {462, 28}, {538, 27}},
				[5]spread{{129, 88}, {256, 103}, {436, 113}, {598, 102}, {784, 93}}},
			{"WB", [5]spread{{322, 47}, {363, 39}, {432, 41}, {503, 41}, {576, 34}},
				[5]spread{{34, 67}, {126, 111}, {276, 134}, {410, 140}, {569, 142}}},
			{"ATB", [5]spread{{281, 44}, {357, 72}, {471, 70}, {551, 73}, {624, 75}},
				[5]spread{{57, 24}, {92, 22}, {124, 18}, {153, 20}, {186, 14}}},
			{"AATB, reference", [5]spread{{304, 44}, {384, 71}, {473, 66}, {543, 56}, {608, 61}},
				[5]spread{{6, 4}, {11, 4}, {15, 4}, {18, 4}, {20, 3}}},
			{"AP of 30 to 90 s", [5]spread{{289, 39}, {346, 39}, {404, 30}, {478, 29}, {552, 29}},
				[5]spread{{4, 3}, {8, 3}, {16, 6}, {23, 6}, {32, 7}}},
			{"XATB", [5]spread{{280, 36}, {346, 44}, {417, 29}, {494, 29}, {574, 26}},
				[5]spread{{5, 4}, {7, 4}, {8, 5}, {10, 5}, {12, 6}}},
			{"HATB", [5]spread{{272, 36}, {327, 39}, {389, 28}, {461, 28}, {537, 27}},
				[5]spread{{3, 1}, {4, 1}, {5, 1}, {5, 1}, {5, 1}}},
			{"oracle", [5]spread{{271, 36}, {326, 39}, {388, 28}, {461, 28}, {537, 27}}, [5]spread{}},
		},
		{
			{"UB", [5]spread{{302, 3}, {312, 9}, {387, 8}, {460, 7}, {534, 7}},
				[5]spread{{0, 0}, {77, 76}, {754, 145}, {1399, 187}, {2062, 172}}},
			{"WB", [5]spread{{374, 23}, {383, 19}, {445, 24}, {541, 32}, {626, 26}},
				[5]spread{{0, 0}, {9, 32}, {531, 134}, {1003, 170}, {1575, 172}}},
			{"ATB", [5]spread{{304, 4}, {362, 32}, {526, 39}, {603, 31}, {654, 28}},
				[5]spread{{0, 0}, {10, 7}, {80, 15}, {141, 22}, {198, 22}}},
			{"AATB, reference", [5]spread{{302, 3}, {367, 44}, {535, 30}, {603, 26}, {637, 22}},
				[5]spread{{0, 0}, {19, 10}, {88, 14}, {136, 17}, {180, 18}}},
			{"AP of 30 to 90 s", [5]spread{{302, 3}, {344, 22}, {426, 20}, {498, 16}, {576, 22}},
				[5]spread{{0, 0}, {6, 4}, {62, 14}, {130, 22}, {204, 21}}},
			{"XATB", [5]spread{{302, 3}, {312, 9}, {389, 5}, {461, 3}, {534, 4}},
				[5]spread{{0, 0}, {10, 11}, {75, 11}, {93, 11}, {100, 13}}},
			{"HATB", [5]spread{{302, 3}, {308, 6}, {379, 4}, {452, 2}, {527, 2}},
				[5]spread{{0, 0}, {24, 17}, {66, 11}, {81, 9}, {89, 6}}},
			{"oracle", [5]spread{{302, 3}, {308, 6}, {378, 4}, {452, 2}, {527, 2}}, [5]spread{}},
		},
	} {
		s := scenarios()[i]
		for _, c := range curves {
			for n, requests := range loads {
				got := usual(s, requests, c.name)
				seconds, refused := 0.015, 0.06
				switch c.name { // what the two read differently
				case "AATB, reference":
					seconds = 0.06
				case "XATB":
					refused = 0.2
				}
				where := fmt.Sprint(s.name, ", ", requests, ", ", c.name)
				c.seconds[n].holds(t, where+": seconds", got.seconds, seconds, 1)
				c.refused[n].holds(t, where+": 429s", got.refused, refused, 2)
				if got.unfinished > 0 {
					t.Errorf("%s of %s, %d: %d requests are left", c.name, s.name, requests, got.unfinished)
				}
			}
		}
	}
}
