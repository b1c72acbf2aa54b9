package endpoint_test

import (
	"fmt"

	"github.com/headgate-io/headgate/endpoint"
)

func Example() {
	var templates []endpoint.Template
	for _, text := range []string{"GET /v1/items/{id}", "GET /v1/items/search", "GET /files/{path...}"} {
		template, err := endpoint.ParseTemplate(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		templates = append(templates, template)
	}
	table, err := endpoint.Compile(templates, endpoint.Profile{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, target := range []string{"/v1/items/7", "/v1//x/..//items/%37?full=1", "/v1/items/search", "/files/a/b",
		"/wp-login.php", "/v1/items%2F7"} {
		switch m := table.Match("GET", target); m.Status {
		case endpoint.Known:
			fmt.Println(table.Template(m.ID))
		case endpoint.Invalid:
			fmt.Println("the request target", m.Fault)
		default:
			fmt.Println(m.Status)
		}
	}
	// Output:
	// GET /v1/items/{id}
	// GET /v1/items/{id}
	// GET /v1/items/search
	// GET /files/{path...}
	// unknown path
	// the request target holds an encoded / or \
}

func ExampleCompile() {
	a, _ := endpoint.ParseTemplate("GET /v1/items/{id}")
	b, _ := endpoint.ParseTemplate("GET /v1/items/{item}")
	_, err := endpoint.Compile([]endpoint.Template{a, b}, endpoint.Profile{})
	fmt.Println(err)
	// Output:
	// templates "GET /v1/items/{id}" and "GET /v1/items/{item}" both match /v1/items/x with equal specificity: remove one, or make one more specific
}

func ExampleTable_Allowed() {
	list, _ := endpoint.ParseTemplate("GET /v1/items")
	create, _ := endpoint.ParseTemplate("POST /v1/items")
	table, _ := endpoint.Compile([]endpoint.Template{list, create}, endpoint.Profile{})
	fmt.Println(table.Match("DELETE", "/v1/items").Status, table.Allowed("/v1/items"))
	// Output: unknown method [GET HEAD POST]
}

func ExampleTable_Closest() {
	list, _ := endpoint.ParseTemplate("GET /v1/items")
	table, _ := endpoint.Compile([]endpoint.Template{list}, endpoint.Profile{})
	misspelled, _ := endpoint.ParseTemplate("GET /v1/itmes")
	closest, ok := table.Closest(misspelled)
	fmt.Println(closest, ok)
	// Output: GET /v1/items true
}
