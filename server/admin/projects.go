package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/headgate-io/headgate/server/record"
)

// ProjectEntry is a project that is in a tier.
type ProjectEntry struct {
	Project string `json:"project"`
	Tier    string `json:"tier"`
}

// Projects is the answer to GET /v1/projects, by name.
type Projects struct {
	Projects []ProjectEntry `json:"projects"`
	Next     string         `json:"next,omitempty"`

	number int64
}

func (p Projects) etag() int64 { return p.number }

// listProjects shows the projects of the database. A page begins after a name,
// so that pages join whatever changes in between.
func (d *Door) listProjects(w http.ResponseWriter, r *http.Request) {
	most, err := pageLimit(r)
	if err != nil {
		refuseError(w, r, invalidRequest, err)
		return
	}
	query := r.URL.Query()
	d.read(w, r, func(ctx context.Context, db Rules) (any, error) {
		page := Projects{Projects: []ProjectEntry{}}
		if project := query.Get("project"); project != "" {
			tier, version, err := db.Tier(ctx, project)
			page.Projects, page.number = append(page.Projects, ProjectEntry{project, tier}), version
			return page, err
		}
		list, version, err := db.Projects(ctx, query.Get("cursor"), most)
		if err != nil {
			return nil, err
		}
		page.number = version
		for _, p := range list {
			page.Projects = append(page.Projects, ProjectEntry(p))
		}
		if len(list) == most {
			page.Next = list[most-1].Project
		}
		return page, nil
	})
}

func (d *Door) setProject(w http.ResponseWriter, r *http.Request) {
	var body ProjectEntry
	err := decode(w, r, &body)
	if err == nil && (body.Project == "" || body.Tier == "") {
		err = errors.New("project or tier is missing, want both; DELETE takes a project out of its tier")
	}
	d.edit(w, r, err, authorInQuery(r), func(e *record.Edit) string {
		e.Tiers, e.Action = map[string]string{body.Project: body.Tier}, record.ActionTier
		return "tier of project " + asSent(body.Project)
	}, false)
}

func (d *Door) deleteProject(w http.ResponseWriter, r *http.Request) {
	project := r.URL.Query().Get("project")
	var err error
	if project == "" {
		err = errors.New("project is missing, want the one to take out of its tier")
	}
	d.edit(w, r, err, authorInQuery(r), func(e *record.Edit) string {
		e.Tiers, e.Action = map[string]string{project: ""}, record.ActionTier
		return "tier of project " + asSent(project)
	}, false)
}
