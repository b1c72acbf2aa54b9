package garden;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.File;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.springframework.web.context.support.AnnotationConfigWebApplicationContext;
import org.springframework.web.servlet.DispatcherServlet;

/** Tomcat and Jetty with one servlet that looks at the decoded path, and Spring MVC (PathPattern) on Tomcat: Main KIND PORT. */
public final class Main {
    static final class Routes extends HttpServlet {
        private static final Map<String, Pattern> ROUTES = new LinkedHashMap<>();

        static {
            for (String route : new String[] {
                "GET /v1/items", "POST /v1/items", "GET /v1/items/search", "GET /v1/items/{id}", "GET /v1/items/{id}/parts/{part}",
                "GET /v1/admin/users", "GET /v1/admin/users/{id}", "GET /v1/exports", "GET /v1/getThing", "GET /public/{path...}",
                "GET /rpc", "POST /login"}) {
                String path = route.substring(route.indexOf(' ') + 1).replace("{path...}", "\u0001").replaceAll("\\{\\w+}", "[^/]+");
                ROUTES.put(route, Pattern.compile(path.replace("\u0001", ".+"), Pattern.DOTALL));
            }
        }

        @Override
        protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
            String method = request.getMethod().equals("HEAD") ? "GET" : request.getMethod();
            String path = request.getPathInfo() == null ? request.getServletPath() : request.getServletPath() + request.getPathInfo();
            String served = "-";
            for (Map.Entry<String, Pattern> route : ROUTES.entrySet()) {
                if (route.getKey().startsWith(method + " ") && route.getValue().matcher(path).matches()) {
                    served = route.getKey();
                    break;
                }
            }
            answer(request, response, served);
        }
    }

    static void answer(HttpServletRequest request, HttpServletResponse response, String served) throws IOException {
        String user = "";
        if (served.equals("GET /rpc") && "login".equals(request.getParameter("action"))) {
            served = "GET /rpc?action=login";
        }
        if (served.equals("POST /login") && request.getParameter("user") != null) {
            user = request.getParameter("user");
        }
        response.setStatus(served.equals("-") ? 404 : 200);
        response.setHeader("X-Route", served);
        response.setHeader("X-Id", String.valueOf(request.getHeader("X-Id")));
        response.setHeader("X-Method", request.getMethod());
        response.setHeader("X-User", java.net.URLEncoder.encode(user, java.nio.charset.StandardCharsets.UTF_8));
        response.getWriter().print("ok");
    }

    public static void main(String[] args) throws Exception {
        java.util.logging.LogManager.getLogManager().reset();
        int port = Integer.parseInt(args[1]);
        if (args[0].equals("jetty")) {
            Server server = new Server(new org.eclipse.jetty.util.thread.QueuedThreadPool(16));
            ServerConnector connector = new ServerConnector(server, 1, 1);
            connector.setHost("127.0.0.1");
            connector.setPort(port);
            server.addConnector(connector);
            ServletContextHandler handler = new ServletContextHandler();
            handler.addServlet(new ServletHolder(new Routes()), "/*");
            server.setHandler(handler);
            server.start();
            server.join();
            return;
        }
        File dir = new File(System.getenv("HOME")); // of this server, and gone with it
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(dir.getPath());
        tomcat.setHostname("127.0.0.1");
        tomcat.setPort(port);
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        tomcat.getConnector().setProperty("maxKeepAliveRequests", "-1");
        tomcat.getConnector().setProperty("maxThreads", "16");
        Context context = tomcat.addContext("", dir.getPath());
        if (args[0].equals("spring")) {
            AnnotationConfigWebApplicationContext spring = new AnnotationConfigWebApplicationContext();
            spring.register(Spring.class);
            Tomcat.addServlet(context, "app", new DispatcherServlet(spring)).setLoadOnStartup(1);
            context.addServletMappingDecoded("/", "app");
        } else {
            Tomcat.addServlet(context, "app", new Routes());
            context.addServletMappingDecoded("/*", "app");
        }
        tomcat.start();
        tomcat.getServer().await();
    }
}
