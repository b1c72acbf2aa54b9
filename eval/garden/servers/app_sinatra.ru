# Sinatra on Puma, with Rack's params.
require 'sinatra/base'
require 'uri'

class Garden < Sinatra::Base
  set :environment, :production
  disable :protection, :logging, :dump_errors, :show_exceptions
  set :host_authorization, {}

  helpers do
    def served(route, user = '')
      headers 'X-Route' => route, 'X-Id' => request.env['HTTP_X_ID'].to_s, 'X-Method' => request.request_method,
              'X-User' => URI.encode_www_form_component(user.is_a?(String) ? user : user.inspect)
      'ok'
    end
  end

  get('/v1/items') { served 'GET /v1/items' }
  post('/v1/items') { served 'POST /v1/items' }
  get('/v1/items/search') { served 'GET /v1/items/search' }
  get('/v1/items/:id') { served 'GET /v1/items/{id}' }
  get('/v1/items/:id/parts/:part') { served 'GET /v1/items/{id}/parts/{part}' }
  get('/v1/admin/users') { served 'GET /v1/admin/users' }
  get('/v1/admin/users/:id') { served 'GET /v1/admin/users/{id}' }
  get('/v1/exports') { served 'GET /v1/exports' }
  get('/v1/getThing') { served 'GET /v1/getThing' }
  get('/public/*') { served 'GET /public/{path...}' }
  get('/rpc') { served(params['action'] == 'login' ? 'GET /rpc?action=login' : 'GET /rpc') }
  post('/login') { served 'POST /login', params['user'] || '' }
end

run Garden
