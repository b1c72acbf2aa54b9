package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/headgate-io/headgate/server/record"
)

// pageOf is the page of a list that r asks for, which begins after the entry with the ID of the
// cursor, and the cursor of the following page. What says what they are. New ones come behind the
// others, so pages move only where one is deleted by SQL.
func pageOf[T any](r *http.Request, list []T, what string, id func(T) string) (page []T, next string, err error) {
	most, err := pageLimit(r)
	if err != nil {
		return nil, "", err
	}
	if after := r.URL.Query().Get("cursor"); after != "" {
		at := slices.IndexFunc(list, func(t T) bool { return id(t) == after })
		if at < 0 {
			const gone = "There is no %s %s any more, after which this page begins: begin with the first page."
			return nil, "", fault{pagesMoved, fmt.Errorf(gone, what, asSent(after))}
		}
		list = list[at+1:]
	}
	if len(list) <= most {
		return list, "", nil
	}
	return list[:most], id(list[most-1]), nil
}

// revoke ends what is called name, of those that are listed at a path. Attribute is what the log
// calls the name.
func (d *Door) revoke(w http.ResponseWriter, r *http.Request, what, listed, attribute string,
	revoke func(context.Context, string) error) {
	name := r.PathValue(attribute)
	about(r, what+" "+asSent(name))
	err := revoke(context.WithoutCancel(r.Context()), name)
	switch {
	case errors.Is(err, record.ErrNotFound):
		refuse(w, r, notFound, fmt.Errorf("There is no such %s; GET %s lists them.", what, listed))
	case err != nil:
		refuse(w, r, unavailable, fmt.Errorf("The %s could not be revoked: %w.", what, err))
	default:
		d.Log.Info(what+" revoked", attribute, name, "by", callerOf(r).actor)
		w.WriteHeader(http.StatusNoContent)
	}
}
