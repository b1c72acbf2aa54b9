<?php
// PHP's built-in server with the front controller that small applications begin with.
$path = rawurldecode((string) parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH));
$method = $_SERVER['REQUEST_METHOD'] === 'HEAD' ? 'GET' : $_SERVER['REQUEST_METHOD'];
$routes = [
    'GET /v1/items' => '#^/v1/items$#D', 'POST /v1/items' => '#^/v1/items$#D', 'GET /v1/items/search' => '#^/v1/items/search$#D',
    'GET /v1/items/{id}' => '#^/v1/items/[^/]+$#D', 'GET /v1/items/{id}/parts/{part}' => '#^/v1/items/[^/]+/parts/[^/]+$#D',
    'GET /v1/admin/users' => '#^/v1/admin/users$#D', 'GET /v1/admin/users/{id}' => '#^/v1/admin/users/[^/]+$#D',
    'GET /v1/exports' => '#^/v1/exports$#D', 'GET /v1/getThing' => '#^/v1/getThing$#D', 'GET /public/{path...}' => '#^/public/.+$#sD',
    'GET /rpc' => '#^/rpc$#D', 'POST /login' => '#^/login$#D',
];
$served = '-';
foreach ($routes as $name => $pattern) {
    if (strtok($name, ' ') === $method && preg_match($pattern, $path)) {
        $served = $name;
        break;
    }
}
if ($served === 'GET /rpc' && ($_GET['action'] ?? '') === 'login') {
    $served = 'GET /rpc?action=login';
}
if ($served === '-') {
    http_response_code(404);
}
header('X-Route: ' . $served);
header('X-Id: ' . ($_SERVER['HTTP_X_ID'] ?? ''));
header('X-Method: ' . $_SERVER['REQUEST_METHOD']);
$user = $_POST['user'] ?? '';
header('X-User: ' . rawurlencode(is_string($user) ? $user : json_encode($user, JSON_INVALID_UTF8_SUBSTITUTE)));
echo 'ok';
