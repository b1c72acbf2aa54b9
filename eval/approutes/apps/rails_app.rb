# Routes of Rails in most of their shapes. `ruby rails_app.rb routes` prints them as `bin/rails routes` does, `expanded` as
# with --expanded; else it answers lines "METHOD /target" by who serves them.
require "rails"
require "action_controller/railtie"
require "action_dispatch/routing/inspector"

class App < Rails::Application
  config.eager_load = false
  config.logger = Logger.new(nil)
  config.secret_key_base = "none"
  config.hosts.clear
  config.action_dispatch.show_exceptions = true
  config.consider_all_requests_local = false
end

module Blog
  class Engine < ::Rails::Engine
    isolate_namespace Blog
  end
end

class Any < ActionController::Base
  def action_missing(name) = render(plain: "#{controller_path}##{name}")
end
%w[Home Users Items Files Books Deep Sub Photos].each { |n| Object.const_set("#{n}Controller", Class.new(Any)) }
Blog.const_set(:PostsController, Class.new(Any))

Rails.application.initialize!
Blog::Engine.routes.draw do
  resources :posts, only: [:index, :show]
  root to: "posts#index"
end
Rails.application.routes.draw do
  root to: "home#index"
  resources :users
  get "/items/:id", to: "items#show", constraints: { id: /\d+/ }
  get "/items/:slug", to: "items#slug"
  get "/files/*path", to: "files#show"
  get "/files2/*path", to: "files#two", format: false
  match "/any", to: "home#any", via: :all
  match "/two", to: "home#two", via: [:get, :post]
  mount Blog::Engine => "/blog"
  mount ->(env) { [200, { "Content-Type" => "text/plain" }, ["rack"]] } => "/rack"
  scope "(:locale)", locale: /en|de/ do
    resources :books, only: [:index, :show]
  end
  get "/a/:b/*c/d", to: "deep#show", defaults: { format: "json" }
  constraints subdomain: "api" do
    get "/sub", to: "sub#show"
  end
  get "/photos/:id.:ext", to: "photos#show"
end

formatters = ActionDispatch::Routing::ConsoleFormatter
if ARGV[0]
  inspector = ActionDispatch::Routing::RoutesInspector.new(Rails.application.routes.routes)
  puts inspector.format(ARGV[0] == "expanded" ? formatters::Expanded.new(width: 80) : formatters::Sheet.new)
else
  STDIN.each_line do |line|
    method, target = line.split
    status, _, body = Rails.application.call(Rack::MockRequest.env_for(target, method: method))
    text = +""
    body.each { |part| text << part }
    puts(status == 200 && method != "HEAD" ? text : "-")
  end
end
